-- Semaphore: a sorted set of the ids that hold a slot, scored by the end of their lease. ZREM gives a slot back.
-- KEYS[1] the sorted set; ARGV: slots, id, seconds that the lease lasts. Replies: 0 allowed or 1 limited, free slots.
local slots = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local used = redis.call('ZCARD', KEYS[1])
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then
  used = used - 1
elseif used >= slots then
  return {1, 0}
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {0, slots - used - 1}
