-- Settles a reservation (reserve.lua): corrects the counter to what the request really cost.
-- KEYS[1] the stem of the three keys; ARGV: id, units that it really cost. Replies: 1 settled, 0 no such reservation.
-- Known flaw: if the window has passed meanwhile, the counter is gone or counts a new window, and this script cannot tell.
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
