-- Sliding log in a list of times, newest last, for several rules: for each rule, the age of the limit-th newest entry decides.
-- KEYS[1] the list; ARGV: limit, period in microseconds, for each rule. Replies: 0 allowed or 1 limited, wait in ms.
local time = redis.call('TIME')
local now = time[1] * 1e6 + time[2]
local largest, longest, wait = 0, 0, 0
for i = 1, #ARGV, 2 do
  local limit, period = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local entry = redis.call('LINDEX', KEYS[1], -limit)
  if entry then
    wait = math.max(wait, entry + period - now)
  end
  largest, longest = math.max(largest, limit), math.max(longest, period)
end
if wait > 0 then
  return {1, math.ceil(wait / 1000)}
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
redis.call('LTRIM', KEYS[1], -largest, -1)
redis.call('PEXPIRE', KEYS[1], math.ceil(longest / 1000))
return {0, 0}
