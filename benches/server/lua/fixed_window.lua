-- Fixed window: a counter that expires with its window, which opens at the first request.
-- KEYS[1] the counter; ARGV: limit, period in seconds. Replies: 0 allowed or 1 limited, remaining, wait in ms.
local limit = tonumber(ARGV[1])
local count = redis.call('INCR', KEYS[1])
if count == 1 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
if count > limit then
  return {1, 0, redis.call('PTTL', KEYS[1])}
end
return {0, limit - count, 0}
