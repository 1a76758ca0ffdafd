-- Token bucket: a hash of the tokens left and the time of the last call, refilled for the time since.
-- KEYS[1] the hash; ARGV: capacity, tokens a second. Replies: 0 allowed or 1 limited, remaining, wait in ms.
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(bucket[1] or capacity)
local passed = math.max(0, now - tonumber(bucket[2] or now))
tokens = math.min(capacity, tokens + passed * rate)
if tokens < 1 then
  return {1, 0, math.ceil((1 - tokens) / rate * 1000)}
end
tokens = tokens - 1
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((capacity - tokens) / rate * 1000))
return {0, math.floor(tokens), 0}
