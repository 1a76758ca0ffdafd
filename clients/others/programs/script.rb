require "digest"
require "redis"

REDIS = Redis.new(url: "redis://127.0.0.1:6379", timeout: 0.1, reconnect_attempts: 0)
SCRIPT = File.read("ratelimit.lua")
SHA = Digest::SHA1.hexdigest(SCRIPT)

# The HTTP status and the seconds for Retry-After.
def check(key, *rules)
  words = [1, "#{key}:script", "CHECK", *rules]
  verdict, _, _, wait_ms =
    begin
      REDIS.call("EVALSHA", SHA, *words)
    rescue Redis::CommandError => error
      raise unless error.message.start_with?("NOSCRIPT")
      REDIS.call("EVAL", SCRIPT, *words)
    end
  [[200, 429][verdict], (wait_ms + 999) / 1000]
end

puts check("login:42", "5/h").join(" ")
