-- Sliding log in a sorted set: members and scores are times. Drops what has left the window and counts the rest.
-- KEYS[1] the sorted set; ARGV: limit, period in microseconds. Replies: 0 allowed or 1 limited, remaining.
local limit, period = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1e6 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - period))
local count = redis.call('ZCARD', KEYS[1])
if count >= limit then
  return {1, 0}
end
local entry = string.format('%.0f', now)
redis.call('ZADD', KEYS[1], entry, entry)
redis.call('PEXPIRE', KEYS[1], math.ceil(period / 1000))
return {0, limit - count - 1}
