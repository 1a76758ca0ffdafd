-- Sliding counter: the count of this window, plus that of the previous one, weighted by how much of it the sliding window covers.
-- KEYS[1] the stem of the keys, a counter for each window; ARGV: limit, period in seconds. Replies: 0 allowed or 1 limited, remaining.
local limit, period = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local window = math.floor(now / period)
local current = KEYS[1] .. ':' .. window
local before = tonumber(redis.call('GET', KEYS[1] .. ':' .. (window - 1)) or 0)
local count = tonumber(redis.call('GET', current) or 0)
local used = before * (1 - (now / period - window)) + count
if used + 1 > limit then
  return {1, 0}
end
redis.call('INCR', current)
if count == 0 then
  redis.call('EXPIRE', current, 2 * period)
end
return {0, math.floor(limit - used - 1)}
