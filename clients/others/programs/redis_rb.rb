require "redis"

REDIS = Redis.new(url: "redis://127.0.0.1:6379", timeout: 0.1, reconnect_attempts: 0)

# The HTTP status and the seconds for Retry-After.
def check(key, *rules)
  verdict, _, _, wait_ms = REDIS.call("RL.CHECK", key, *rules)
  [[200, 429, 403][verdict], (wait_ms + 999) / 1000]
rescue Redis::BaseConnectionError => error
  warn "not limited: #{error.message}"
  [200, 0]
end

puts check("login:42", "5/h").join(" ")
