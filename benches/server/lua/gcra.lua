-- GCRA: a string holds the theoretical arrival time, in microseconds: the time at which the bucket is full again.
-- KEYS[1] the string; ARGV: burst, count, period in seconds, as in CL.THROTTLE.
-- Replies: 0 allowed or 1 limited, remaining, wait in ms.
local emission = tonumber(ARGV[3]) * 1e6 / tonumber(ARGV[2])
local tolerance = emission * (ARGV[1] + 1)
local time = redis.call('TIME')
local now = time[1] * 1e6 + time[2]
local arrival = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0)) + emission
local room = now + tolerance - arrival
if room < 0 then
  return {1, 0, math.ceil(-room / 1000)}
end
redis.call('SET', KEYS[1], string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
return {0, math.floor(room / emission), 0}
