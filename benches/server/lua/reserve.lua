-- Reservation: a fixed window whose units a caller reserves, then settles (settle.lua). Idempotent by the id.
-- KEYS[1] the stem of three keys: a counter, a hash of reserved units by id, a sorted set of ids by their ends.
-- ARGV: limit, period in seconds, id, units, seconds that the reservation lasts.
-- A reservation that is not settled ends by itself, and its units stay charged. Replies: 0 allowed or 1 limited, remaining.
local held, ends = KEYS[1] .. ':held', KEYS[1] .. ':ends'
local limit, period, id, units = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local ended = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)
if #ended > 0 then
  redis.call('HDEL', held, unpack(ended))
  redis.call('ZREM', ends, unpack(ended))
end
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
if redis.call('HEXISTS', held, id) == 1 then
  redis.call('ZADD', ends, now + ARGV[5], id)
  return {0, limit - used}
end
if used + units > limit then
  return {1, limit - used}
end
if redis.call('INCRBY', KEYS[1], units) == units then
  redis.call('EXPIRE', KEYS[1], period)
end
redis.call('HSET', held, id, units)
redis.call('ZADD', ends, now + ARGV[5], id)
redis.call('EXPIRE', held, period + ARGV[5])
redis.call('EXPIRE', ends, period + ARGV[5])
return {0, limit - used - units}
