-- Settles a reservation (reserve.lua): the counter is corrected to what the request really cost.
-- KEYS[1] the stem of the three keys; ARGV: id, units that it really cost. Replies: 1 settled, 0 no such reservation.
-- The window may have passed meanwhile: then the counter is gone, or counts another one, which this cannot tell.
local held = KEYS[1] .. ':held'
local units = redis.call('HGET', held, ARGV[1])
if not units then
  return 0
end
redis.call('HDEL', held, ARGV[1])
redis.call('ZREM', KEYS[1] .. ':ends', ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('INCRBY', KEYS[1], ARGV[2] - units)
end
return 1
