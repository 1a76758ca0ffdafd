-- The limiter of the module `ratelimit` as a script, for servers that load no module. It answers the same, integer by integer:
--
--   EVAL script 1 user:42:script CHECK|PEEK [COST n] [COST name=n] [AT us] rule [rule ...]
--                                REFUND units [AT us] [rule ...]
--                                RESET
--
-- Words and replies are those of RL.CHECK, RL.PEEK, RL.REFUND and RL.RESET. Rules are log, window, fixed, bucket and leaky with every
-- option but `ban` and `keep`. Anything else is an error that says that it needs the module.
--
-- KEY    ends with `:script`, which the caller appends: the script never meets a value of the module or of the application. A hash
--        tag before it keeps its meaning, as in `{user:42}:login:script`. The script touches no other key.
-- STATE  is one string: a version, then one state an identity. It expires as the module's does: once nothing in it counts, or up to
--        an eighth of the longest window (at least a second) later. A denial writes nothing, except for `count=all`.
-- CLOCK  is the server's; if the server refuses TIME in scripts, AT gives the caller's. The time of a state never runs backwards.
-- EXACT  Numbers are exact up to 2^53. A larger one is kept as whole units and a remainder in fractions of the period. Times, and the
--        time in which a full bucket drains, are refused beyond 2^52 microseconds: the year 2112, and 142 years.
-- The module's source, in core/src/algorithm, explains each formula. The names here are the same.
local floor, ceil, min, max, abs, sub, find, match = math.floor, math.ceil, math.min, math.max, math.abs, string.sub, string.find, string.match
local NEVER, MOST_US, MOST_UNITS, MOST_COUNT, DAY_US = math.huge, 2 ^ 52, 1e9, 2 ^ 48 - 1, 86400e6
local now_us, rules, states, refusal = nil, {}, {}, nil
local function fail(why, ...)
  refusal = {err = 'ERR ' .. string.format(why, ...)}
  error(refusal)
end
-- floor(a * b / d) and the remainder. Exact for a and b up to 2^53 and d up to 2^48; a quotient beyond 2^53 is only about right.
local function muldiv(a, b, d)
  if a * b < 2 ^ 53 then return floor(a * b / d), a * b % d end
  local times = floor(b / d)
  local quotient, rest = muldiv(floor(a / 16), b - times * d, d)
  rest = rest * 16 + a % 16 * (b - times * d)
  return quotient * 16 + floor(rest / d) + times * a, rest % d
end
local function ms_after(us, since_us) return max(0, ceil((us - since_us) / 1000)) end
-- When a state is read: not before its own time, unless the clock stepped back by more than the window (nil).
local function effective_time(at_us, last_us, window_us)
  return last_us <= at_us and at_us or last_us - at_us <= window_us and last_us or nil
end

-- An algorithm. Its `read` returns the remaining units, when a state admits the rule's cost, and a leaky rule's turn.
local bucket, window, fixed, log = {}, {}, {}, {}
local ALGORITHMS = {bucket = bucket, leaky = bucket, interval = fixed, window = window, fixed = fixed, log = log}
local function read_used(used, rule, at_us, later_us)
  return max(0, rule.capacity - used), used + rule.cost <= rule.capacity and at_us or later_us, 0
end

-- bucket, leaky: a debt of units + rem / period, which drains at limit / period.
bucket.saved = {'last', 'period', 'rem', 'units', 'limit'}
local function drained_us(state, units, rem, limit)
  local us, rest = muldiv(state.period, units, limit)
  return us + ceil((rest + rem) / limit)
end
function bucket.clears(state, rule)
  return state.units + state.rem == 0 and 0 or state.last + drained_us(state, state.units, state.rem, max(rule.limit, state.limit))
end
function bucket.ends(state) return bucket.clears(state, state) end
local function owed_at(state, limit, at_us) -- units, rem and both rounded up; at a lower limit than its own it drains until it ends
  local units, rem = muldiv(at_us - state.last, limit, state.period)
  units, rem = state.units - units, state.rem - rem
  if rem < 0 then units, rem = units - 1, rem + state.period end
  if units < 0 or limit < state.limit and bucket.ends(state) <= at_us then return 0, 0, 0 end
  return units, rem, units + ceil(rem / state.period)
end
function bucket.of_units(rule, _, units) return {units = units, rem = 0, limit = max(rule.limit, 1)} end
function bucket.consumed(state, at_us) return (select(3, owed_at(state, state.limit, at_us))) end
function bucket.read(state, rule, at_us)
  local units, rem, used = owed_at(state, rule.limit, at_us)
  local ends_us = rule.limit < state.limit and used > 0 and bucket.ends(state) or NEVER
  local fits, over = used + rule.cost <= rule.capacity, units + rule.cost - rule.capacity
  local admits_us = fits and at_us or at_us + drained_us(state, over, rem, rule.limit)
  local turn_us = state.kind == 'leaky' and at_us + drained_us(state, units, rem, rule.limit) or 0
  return max(0, rule.capacity - used), min(admits_us, ends_us), min(turn_us, ends_us)
end
function bucket.consume(state, rule, at_us)
  local units, rem, used = owed_at(state, rule.limit, at_us)
  if used + rule.cost <= rule.capacity then units = units + rule.cost elseif units < rule.capacity then units, rem = rule.capacity, 0 end
  state.units, state.rem, state.last, state.limit = units, rem, at_us, rule.limit > 0 and rule.limit or state.limit
end
function bucket.reshape(state, reshaped) -- to fractions of another period, rounded up
  local rem, rest = muldiv(state.rem, reshaped.period, state.period)
  rem = rem + ceil(rest / state.period)
  reshaped.units, reshaped.rem = state.units + floor(rem / reshaped.period), rem % reshaped.period
end
function bucket.refund(state, units, at_us)
  local used = bucket.consumed(state, at_us)
  if used > units then state.units = state.units - units else state.units, state.rem = 0, 0 end
  return min(units, used)
end

-- window: up to res + 1 counts, newest first, of sub-intervals of `period` ticks, which are 1 / res microseconds. Its shape is res.
window.saved = {'last', 'period', 'shape', 'counts'}
local function place(state, at_us) -- the sub-interval, the ticks since its start, and how many later it is than the last counted
  local index, elapsed = muldiv(at_us, state.shape, state.period)
  return index, elapsed, index - (muldiv(state.last, state.shape, state.period))
end
local function micros(state, index, ticks)
  local us, rest = muldiv(index, state.period, state.shape)
  return us + ceil((rest + ticks) / state.shape)
end
local function counted(state, shift) -- the units that count in full, and the weighted ones
  local full, weighted = 0, state.shape - shift + 1
  for i = 1, min(weighted - 1, #state.counts) do full = full + state.counts[i] end
  return full, state.counts[weighted] or 0
end
function window.of_units(_, _, units) return {counts = {min(units, MOST_COUNT)}} end
function window.consumed(state, at_us) -- cur + old * (period - elapsed) / period, rounded up
  local _, elapsed, shift = place(state, at_us)
  local full, old = counted(state, shift)
  local units, rem = muldiv(old, state.period - elapsed, state.period)
  return full + units + ceil(rem / state.period)
end
function window.read(state, rule, at_us)
  local remaining, admits_us = read_used(window.consumed(state, at_us), rule, at_us, NEVER)
  local index, _, shift = place(state, at_us)
  while admits_us == NEVER do -- the first sub-interval in which it fits, and where in it
    local full, old = counted(state, shift)
    local allowance = max(0, rule.limit - rule.cost) - full
    local elapsed = old > 0 and allowance >= 0 and max(0, state.period - muldiv(allowance, state.period, old)) or 0
    if allowance >= 0 then admits_us = max(at_us, micros(state, index, elapsed)) end
    index, shift = index + 1, shift + 1
  end
  return remaining, admits_us, 0
end
function window.consume(state, rule, at_us)
  local _, _, shift = place(state, at_us)
  for i = min(#state.counts + shift, state.shape + 1), 1, -1 do state.counts[i] = state.counts[i - shift] or 0 end
  state.last, state.counts[1] = at_us, min(state.counts[1] + rule.cost, MOST_COUNT)
end
function window.ends(state)
  local age = 1
  while state.counts[age] == 0 do age = age + 1 end
  return state.counts[age] and micros(state, muldiv(state.last, state.shape, state.period) + state.shape + 2 - age, 0) or 0
end
function window.refund(state, units, at_us)
  local left, _, _, shift = units, place(state, at_us)
  for i = 1, min(#state.counts, state.shape + 1 - shift) do
    state.counts[i], left = max(0, state.counts[i] - left), max(0, left - state.counts[i])
  end
  return units - left
end

-- fixed, and bucket with refill=interval: one count. Its shape is the time zone, and in two bits whether windows begin at the epoch
-- (0), on Mondays (1), with months (2) or at the first request (3). Months: Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fixed.saved = {'last', 'period', 'shape', 'start', 'count'}
local function month_start(local_us, later) -- of the month that contains a local time, or of a later one
  local function days_before(year) return 365 * year + floor(year / 4) - floor(year / 100) end
  local days = floor(local_us / DAY_US) + 719468
  local day = days % 146097
  local year = floor((day - floor(day / 1460) + floor(day / 36524) - floor(day / 146096)) / 365)
  local month = floor((5 * (day - days_before(year)) + 2) / 153) + later -- from March
  year = 400 * floor(days / 146097) + year + floor(month / 12)
  return (146097 * floor(year / 400) + days_before(year % 400) + floor((153 * (month % 12) + 2) / 5) - 719468) * DAY_US
end
local function window_at(shape, period, at_us) -- its start and its end
  local anchor, ahead_us = shape % 4, (floor(shape / 4) - 840) * 60e6
  if anchor == 2 then return month_start(at_us + ahead_us, 0) - ahead_us, month_start(at_us + ahead_us, 1) - ahead_us end
  local start_us = anchor == 3 and at_us or at_us - (at_us + ahead_us - anchor * 4 * DAY_US) % period -- 1970-01-05 was a Monday
  return start_us, start_us + period
end
local function over(state) return (select(2, window_at(state.shape % 4 == 2 and state.shape or 3, state.period, state.start))) end
function fixed.of_units(rule, last_us, units)
  return {start = window_at(rule.shape, rule.period, last_us), count = min(units, MOST_COUNT)}
end
function fixed.consumed(state, at_us) return at_us < over(state) and state.count or 0 end
function fixed.ends(state) return state.count == 0 and 0 or over(state) end
function fixed.read(state, rule, at_us) return read_used(fixed.consumed(state, at_us), rule, at_us, over(state)) end
function fixed.consume(state, rule, at_us)
  local count, most = fixed.consumed(state, at_us), state.kind == 'interval' and rule.capacity or MOST_COUNT
  if count == 0 then state.start = window_at(state.shape, state.period, at_us) end
  state.last, state.count = at_us, max(count, min(count + rule.cost, most))
end
function fixed.refund(state, units, at_us)
  local given = min(units, fixed.consumed(state, at_us))
  state.count = state.count - given
  return given
end

-- log: times, oldest first, and the units of each, negative for a charged denial; of equal times, admitted requests come first. It
-- keeps what its rules need, {window, units, admitted units}: those of the last check, and of earlier ones until their windows passed.
log.saved = {'last', 'needs', 'past', 'times', 'units'}
local function most_needs(needs, past)
  local most = {needs[1], needs[2], needs[3]}
  for _, other in ipairs(past) do for i = 1, 3 do most[i] = max(most[i], other[i]) end end
  return most
end
local function insert(state, us, units)
  local i = #state.times + 1
  while units > 0 and state.times[i - 1] == us and state.units[i - 1] < 0 do i = i - 1 end
  table.insert(state.times, i, us)
  table.insert(state.units, i, units)
end
local function tidy(state) -- drops entries without units
  local times, units, n = {}, {}, 0
  for i, us in ipairs(state.times) do
    if state.units[i] ~= 0 then n, times[n + 1], units[n + 1] = n + 1, us, state.units[i] end
  end
  state.times, state.units, state.last = times, units, times[n] or 0
end
function log.of_units() return {times = {}, units = {}, past = {}, needs = {0, 0, 0}} end
function log.ends(state)
  local until_us = state.last + state.needs[1]
  for _, past in ipairs(state.past) do until_us = max(until_us, past[4]) end
  return state.times[1] and until_us or 0
end
function log.clears(state, rule)
  local i = #state.times
  while i > 0 and state.units[i] < 0 and not rule.all do i = i - 1 end
  return i == 0 and 0 or min(state.times[i] + rule.period, rule.period > state.needs[1] and log.ends(state) or NEVER)
end
function log.read(state, rule, at_us)
  local ends_us = rule.period > state.needs[1] and log.ends(state) or NEVER
  local used, stays, leaves_us, i = 0, max(0, rule.limit - rule.cost), nil, #state.times
  while ends_us > at_us and i > 0 and state.times[i] > at_us - rule.period do
    if state.units[i] > 0 or rule.all then used = used + abs(state.units[i]) end
    if used > stays then leaves_us = leaves_us or state.times[i] end
    i = i - 1
  end
  if rule.cost == 0 and most_needs(state.needs, state.past)[2] <= rule.limit then leaves_us = nil end
  return read_used(used, rule, at_us, leaves_us and min(leaves_us + rule.period, ends_us) or at_us)
end
function log.consume(state, rule, at_us, needs, denied)
  if log.ends(state) <= at_us then state.times, state.units, state.past = {}, {}, {} end
  -- The module keeps the window in four bytes, rounded up to a second beyond 24 days.
  local rounded_us, past = needs[1] < 2 ^ 31 * 1000 and needs[1] or ceil(needs[1] / 1e6) * 1e6, state.past
  state.needs[4], past[#past + 1] = state.last + state.needs[1], state.needs
  state.needs, state.past = {rounded_us, needs[2], needs[3]}, {}
  for _, other in ipairs(past) do
    local covered = rounded_us >= other[1] and needs[2] >= other[2] and needs[3] >= other[3]
    if other[4] > at_us and not covered then table.insert(state.past, other) end
  end
  if #state.past > 8 then fail('more than 8 sets of log rules are in use on one key: that needs the module') end
  local window_us, units, admitted = unpack(most_needs(needs, state.past))
  insert(state, at_us, denied and -rule.cost or rule.cost)
  for i = #state.times, 1, -1 do -- keeps the newest units, and the newest admitted ones
    local sign = state.units[i] < 0 and -1 or 1
    local amount = state.times[i] > at_us - window_us and abs(state.units[i]) or 0
    local kept = max(min(amount, units), sign > 0 and min(amount, admitted) or 0)
    units, admitted, state.units[i] = max(0, units - amount), max(0, admitted - (sign > 0 and kept or 0)), sign * kept
  end
  tidy(state)
end
function log.step_back(state, window_us) -- what a longer window still needs moves to just outside of this one
  local latest_us, times, units = now_us - window_us, state.times, state.units
  local is_needed = latest_us >= 0 and effective_time(now_us, state.last, most_needs(state.needs, state.past)[1])
  state.times, state.units = {}, {}
  if not is_needed then state.needs, state.past, times = {0, 0, 0}, {}, {} end
  for i, us in ipairs(times) do insert(state, min(us, latest_us), units[i]) end
  for _, past in ipairs(state.past) do past[4] = min(past[4], latest_us + past[1]) end
  state.last = state.times[#state.times] or 0
end
function log.refund(state, units, at_us, window_us)
  local left, i = units, #state.times
  while i > 0 and state.times[i] > at_us - window_us do
    local first = i
    while state.times[first - 1] == state.times[i] do first = first - 1 end
    for j = first, i do -- of equal times, admitted requests first
      local taken, sign = min(left, abs(state.units[j])), state.units[j] < 0 and -1 or 1
      state.units[j], left = state.units[j] - taken * sign, left - taken
    end
    i = first - 1
  end
  tidy(state)
  return units - left
end

-- The states of the key, saved as lists. Of a log, the ages of the entries are saved, which are smaller than their times.
local function save()
  local all = {}
  for i, state in ipairs(states) do
    all[i] = {state.kind, state.name}
    local is_plain = state.times
    for j, us in ipairs(state.times or {}) do state.times[j], is_plain = state.last - us, is_plain and state.units[j] == 1 end
    if is_plain then state.units = 1 end -- for each entry
    for j, field in ipairs(ALGORITHMS[state.kind].saved) do all[i][j + 2] = state[field] end
  end
  return 'r\1' .. cmsgpack.pack(all)
end
local function restore(text)
  for i, saved in ipairs(cmsgpack.unpack(sub(text, 3))) do
    states[i] = {kind = saved[1], name = saved[2], shape = 0}
    for j, field in ipairs(ALGORITHMS[saved[1]].saved) do states[i][field] = saved[j + 2] end
    local times, units, last_us = states[i].times or {}, states[i].units, states[i].last
    if states[i].times and units == 1 then states[i].units = {} end
    for j, age in ipairs(times) do times[j], states[i].units[j] = last_us - age, units == 1 and 1 or units[j] end
  end
end
local function ends(state) return ALGORITHMS[state.kind].ends(state) end
local function longest_us(state) return state.kind == 'log' and most_needs(state.needs, state.past)[1] or state.period end
local function family(it) return it.kind == 'interval' and 'bucket' or it.kind end
local function fits(state, rule) -- at a limit of 0 nothing drains, so a named rule leaves the state as it is
  local stays = rule.limit == 0 and rule.name ~= '' and ALGORITHMS[rule.kind] == bucket and family(state) == rule.kind
  return stays or state.kind == rule.kind and (rule.kind == 'log' or state.period == rule.period and state.shape == rule.shape)
end
local function belongs(state, rule) -- a rule reads one by its name, or else by its algorithm, period and shape
  if state.kind == 'log' or rule.kind == 'log' then return state.kind == rule.kind end
  return state.name == rule.name and (rule.name ~= '' or fits(state, rule))
end
local function find_state(rule)
  for i, state in ipairs(states) do if belongs(state, rule) then return state, i end end
end
local function keep(wanted)
  for i = #states, 1, -1 do if not wanted(states[i]) then table.remove(states, i) end end
end
local function new(rule, last_us, units)
  local is_log, state = rule.kind == 'log', ALGORITHMS[rule.kind].of_units(rule, last_us, units)
  state.kind, state.period, state.shape = rule.kind, rule.period, rule.shape
  state.name, state.last = is_log and '' or rule.name, is_log and 0 or last_us
  return state
end
local function seen_by(state, rule, at_us) -- reshaped if the rule has another shape; nil if it ended or is of another algorithm
  if fits(state, rule) then return state end
  if family(state) ~= family(rule) or ends(state) <= at_us then return nil end
  local reshaped = new(rule, state.last, ALGORITHMS[state.kind].consumed(state, state.last))
  if state.rem and reshaped.rem then bucket.reshape(state, reshaped) end
  return reshaped
end
local function read(rule, at_us) -- the state that a rule sees, when it reads it, and when a reshaped one ends
  local state = find_state(rule)
  local read_us = state and effective_time(at_us, state.last, rule.window)
  local seen = read_us and seen_by(state, rule, read_us)
  return seen, seen and read_us or at_us, seen and seen ~= state and ends(state) or NEVER
end
local function decide(rule, at_us) -- whether it denies its cost, its wait or turn (-1: never), and the remaining units
  if rule.limit == 0 then return rule.cost > 0, rule.cost > 0 and -1 or 0, 0 end
  local seen, read_us, ends_us = read(rule, at_us)
  local remaining, admits_us, turn_us = rule.capacity, read_us, 0
  if seen then remaining, admits_us, turn_us = ALGORITHMS[seen.kind].read(seen, rule, read_us) end
  if rule.cost > rule.capacity then return true, -1, remaining end
  local denied = min(admits_us, ends_us) > read_us
  return denied, ms_after(min(denied and admits_us or turn_us, ends_us), at_us), remaining
end
local function reset_ms(rule)
  local seen, read_us, ends_us = read(rule, now_us)
  local clears_us = seen and (ALGORITHMS[seen.kind].clears or ends)(seen, rule) or 0
  return clears_us <= read_us and 0 or ms_after(min(clears_us, ends_us), now_us)
end
local function state_for(rule)
  local state, i = find_state(rule)
  if not state or family(state) ~= family(rule) then
    keep(function(other) -- not another algorithm's state of the name, nor what did not matter for two windows
      local wanted = ends(other) > now_us - 2 * longest_us(other)
      for _, of in ipairs(rules) do wanted = wanted or belongs(other, of) end
      return wanted and (rule.name == '' or other.name ~= rule.name)
    end)
    i = #states + 1
  end
  states[i] = states[i] and seen_by(states[i], rule, now_us) or new(rule, now_us, 0)
  return states[i], i
end
local function consume(denied, needs) -- returns whether a rule does
  local log_rule, consumes, before = nil, false, #states
  for _, rule in ipairs(rules) do
    if rule.cost > 0 and (rule.all or not denied) then
      consumes = true
      if rule.kind == 'log' then
        keep(function(state) return rule.name == '' or state.name ~= rule.name end)
        log_rule = log_rule or rule
      else
        local state, i = state_for(rule)
        local at_us = effective_time(now_us, state.last, rule.period)
        if not at_us then states[i] = new(rule, now_us, 0) end
        ALGORITHMS[states[i].kind].consume(states[i], rule, at_us or now_us)
      end
    end
  end
  if log_rule then -- all log rules share the log and have one cost
    local state = state_for(log_rule)
    local at_us = effective_time(now_us, state.last, needs[1])
    if not at_us then log.step_back(state, needs[1]) end
    log.consume(state, log_rule, at_us or now_us, needs, denied)
  end
  keep(function(state) return ends(state) > 0 end)
  if #states > max(256, before) then fail('the key would hold %d states, expected at most 256', #states) end
  return consumes
end
local function precedes(one, other) -- as the answer: the longer denial, or else what admits its own cost fewer times
  if one.denied or other.denied then return one.denied and (not other.denied or one.wait % 2 ^ 53 > other.wait % 2 ^ 53) end
  if one.cost == other.cost then return one.remaining < other.remaining end
  if one.cost == 0 or other.cost == 0 then return other.cost == 0 end
  local mine, rest = muldiv(one.remaining, other.cost, 2 ^ 30)
  local others, others_rest = muldiv(other.remaining, one.cost, 2 ^ 30)
  return mine < others or mine == others and rest < others_rest
end
-- A rule ignores a state that lies more than a window ahead of a clock that stepped back, and later sees it again, and may deny.
local function until_all_admit(wait)
  for _ = 1, #rules do -- each denies once more at most
    local longest = 0
    for _, rule in ipairs(rules) do
      local denied, longer = decide(rule, now_us + wait * 1000)
      if denied and not rule.shadow then longest = max(longest, longer < 0 and NEVER or longer) end
    end
    if longest == 0 then return wait end
    if longest == NEVER then return -1 end
    wait = wait + longest
  end
  return wait
end
local function check(may_change, needs)
  local denied, chargeable, best, turn = false, true, nil, 0
  for _, rule in ipairs(rules) do
    rule.denied, rule.wait, rule.remaining = decide(rule, now_us)
    denied, chargeable = denied or rule.denied and not rule.shadow, chargeable and (rule.shadow or rule.cost <= rule.capacity)
  end
  local changes = may_change and (chargeable or not denied) and consume(denied, needs)
  for _, rule in ipairs(rules) do
    if changes and denied then rule.denied, rule.wait, rule.remaining = decide(rule, now_us) end
    if changes and not denied then rule.remaining = max(0, rule.remaining - rule.cost) end
    if not rule.shadow then best, turn = best and not precedes(rule, best) and best or rule, max(turn, rule.wait) end
  end
  if not best then return {0, -1, -1, 0, 0}, changes end
  if denied and best.wait >= 0 then best.wait = until_all_admit(best.wait) end
  return {denied and 1 or 0, best.capacity, best.remaining, denied and best.wait or turn, reset_ms(best)}, changes
end
local function refund(units)
  local most = 0
  for _, state in ipairs(states) do
    local window_us = #rules == 0 and longest_us(state)
    for _, rule in ipairs(rules) do window_us = belongs(state, rule) and family(state) == family(rule) and rule.window or window_us end
    local at_us = window_us and effective_time(now_us, state.last, window_us)
    if at_us and ends(state) > at_us then most = max(most, (ALGORITHMS[state.kind].refund(state, units, at_us, window_us))) end
  end
  keep(function(state) return ends(state) > 0 end)
  return most, most > 0
end

-- The text of a rule. Lists are strings, which cost nothing in the many calls that do not need them.
local PERIODS = ' ms=1e3 s=1e6 sec=1e6 secs=1e6 second=1e6 seconds=1e6 m=6e7 min=6e7 mins=6e7 minute=6e7 minutes=6e7 h=36e8 hour=36e8'
  .. ' hours=36e8 d=864e8 day=864e8 days=864e8 w=6048e8 week=6048e8 weeks=6048e8 month=26784e8'
local OWNERS = ' res=window burst=bucket refill=bucket queue=leaky align=fixed tz=fixed'
local VALUES = ' align:epoch=0 align:first=3 refill:interval=3 count:all=1 count:allowed=0 shadow:=1'
local function lookup(list, name) return find(name, '^[%a:]+$') and match(list, ' ' .. name .. '=(%S+)') or nil end
local function number(text, least, most) -- a whole number between bounds, or nil
  local n = find(text, '^%d+$') and tonumber(text)
  return n and n >= least and n <= most and n or nil
end
local function value_of(name, value)
  if name == 'res' then return number(value, 1, 60) end
  if name == 'cost' or name == 'queue' or name == 'burst' then return number(value, name == 'burst' and 1 or 0, MOST_UNITS) end
  if name == 'name' then return #value <= 32 and match(value, '^[%w_.-]+$') end
  if name ~= 'tz' then return tonumber(lookup(VALUES, name .. ':' .. value)) end
  local sign, hours, minutes = match(value, '^([+-])(%d%d):([0-5]%d)$')
  local east = sign and (hours * 60 + minutes) * (sign == '-' and -1 or 1) or NEVER
  return abs(east) <= 840 and east
end
local function parse(text)
  local function wrong(what, expected) fail('rule %q: %s, expected %s', text, what, expected) end
  local function refuse(what) fail('rule %q: %s needs the module', text, what) end
  local kind, body = match(text, '^(%a+):(.*)$')
  kind, body = kind or 'log', body or text
  local limit, count, unit, rest = match(body, '^(%d+)/(%d*)([^,]*)(.*)$')
  if kind == 'slots' or sub(text, 1, 1) == '@' then refuse(kind == 'slots' and kind or 'a policy') end
  if not ALGORITHMS[kind] or kind == 'interval' then wrong('unknown algorithm', 'log, window, fixed, bucket or leaky') end
  if not number(limit or '', 0, MOST_UNITS) then wrong('no limit', 'limit/period such as 20/1m, the limit 0..1000000000') end
  local rule, given = {text = text, limit = tonumber(limit), shape = kind == 'window' and 1 or 0}, {}
  rule.period = (lookup(PERIODS, unit) or 0) * (count == '' and 1 or tonumber(count))
  local no_month = unit == 'month' and (kind ~= 'fixed' or rule.period > 31 * DAY_US)
  if rule.period < 1e3 or rule.period > 366 * DAY_US or no_month then wrong('wrong period', "1ms..366d, or 'month' for fixed") end
  for option in string.gmatch(rest, ',([^,]*)') do
    local name, equals, value = match(option, '^([^=]*)(=?)(.*)$')
    if name == 'ban' or name == 'keep' then refuse(name) end
    if given[name] or (lookup(OWNERS, name) or kind) ~= kind then wrong('option ' .. name, 'options of ' .. kind .. ', each once') end
    given[name] = (equals == '') == (name == 'shadow') and value_of(name, value) or wrong('option ' .. option, 'a known option and a valid value')
  end
  if kind == 'log' and rule.limit > 100000 then wrong('too many entries', 'at most 100000; use window or bucket instead') end
  if given.align == 3 and unit == 'month' then wrong("'month' with align=first", 'align=epoch or a period in days') end
  rule.name, rule.cost, rule.all, rule.shadow = given.name or '', given.cost, given.count == 1, given.shadow
  rule.capacity = rule.limit == 0 and 0 or given.burst or kind == 'leaky' and (given.queue or rule.limit) + 1 or rule.limit
  rule.kind, rule.shape = given.refill and 'interval' or kind, given.res or rule.shape
  if kind == 'fixed' or given.refill then
    local anchor = unit == 'month' and 2 or sub(unit, 1, 1) == 'w' and 1 or 0
    rule.shape = ((given.tz or 0) + 840) * 4 + max(given.align or 0, given.refill or 0, anchor)
  end
  local drains = ALGORITHMS[rule.kind] == bucket and rule.capacity * rule.period > MOST_US * rule.limit
  return drains and refuse('a bucket that drains in more than 142 years') or rule
end
local function read_words()
  local word, at, costs, needs, units = string.upper(ARGV[1] or ''), 2, {}, {0, 0, 0}, nil
  if #KEYS ~= 1 or sub(KEYS[1], -7) ~= ':script' then fail("the key is %q, expected one that ends with ':script'", KEYS[1] or '') end
  if word == 'REFUND' then
    units, at = number(ARGV[2] or '', 0, MOST_UNITS) or fail('units is %q, expected an integer 0..1000000000', ARGV[2] or ''), 3
  elseif word ~= 'CHECK' and word ~= 'PEEK' and (word ~= 'RESET' or #ARGV > 1) then
    fail('%q needs the module, expected CHECK, PEEK, REFUND or RESET', table.concat(ARGV, ' '))
  end
  while at <= #ARGV do
    local option, value = string.upper(ARGV[at]), ARGV[at + 1] or ''
    local name, cost = match(value, '^([%w_.-]+)=(.*)$')
    if lookup(' FULL=1 META=1 HOLD=1', option) or option == 'COST' and find(value, '^%d+%.%.%d+$') then
      fail('%s needs the module', option == 'COST' and 'COST with a range' or option)
    elseif option == 'AT' and not now_us then
      now_us = number(value, 0, MOST_US) or fail('AT is %q, expected an integer 0..%.0f; later needs the module', value, MOST_US)
    elseif option == 'COST' and not units and not costs[name or ''] then
      costs[name or ''] = number(cost or value, 0, MOST_UNITS) or fail('COST is %q, expected 0..1000000000 or name=integer', value)
    else
      if lookup(' AT=1 COST=1', option) then fail('%s is given twice, or not expected here', option) end
      break
    end
    at = at + 2
  end
  for i = at, #ARGV do
    local rule, log_cost = parse(ARGV[i]), nil
    for _, other in ipairs(rules) do
      local same = other.kind == rule.kind and other.period == rule.period and other.shape == rule.shape
      if other.name == rule.name and (rule.name ~= '' or same) then
        fail('rule %q: same identity as rule %q, expected another name=', rule.text, other.text)
      end
      log_cost = other.kind == 'log' and other.cost or log_cost
    end
    rule.cost = rule.name ~= '' and costs[rule.name] or rule.cost or costs[''] or 1
    if rule.kind == 'log' then needs = most_needs(needs, {{rule.period, rule.limit, rule.all and 0 or 1}}) end
    if rule.kind == 'log' and rule.cost ~= (units and rule.cost or log_cost or rule.cost) then
      fail('rule %q: expected the cost of the other log rules: they share a log', rule.text)
    end
    rules[i - at + 1] = rule
  end
  if #rules > 32 then fail('%d rules, expected at most 32', #rules) end
  if #rules == 0 and (word == 'CHECK' or word == 'PEEK') then fail('wrong number of arguments, expected a rule such as 20/1m') end
  needs[3] = min(needs[3], 1) * needs[2]
  for _, rule in ipairs(rules) do
    rule.window, costs[rule.name] = rule.kind == 'log' and needs[1] or rule.period, nil
  end
  costs[''] = nil
  if next(costs) then fail('COST %s= is for no rule here, expected a rule with name=%s', next(costs), next(costs)) end
  return word, units, needs
end

local function write(reply, ...) -- Redis 6.2 puts a line number before the code of an error
  local done = redis.pcall(...)
  if type(done) ~= 'table' or not done.err then return reply or done end
  return {err = (string.gsub(done.err, '^@user_script: %d+: %-', ''))}
end
local function main()
  local word, units, needs = read_words()
  local saved, time = redis.pcall('GET', KEYS[1]), redis.pcall('TIME')
  if type(saved) == 'table' or saved and sub(saved, 1, 2) ~= 'r\1' then
    return {err = 'WRONGTYPE the key holds no value of this version of the script; a value of the module needs the module'}
  end
  if word == 'RESET' then return write(nil, 'DEL', KEYS[1]) end
  local clock_us = time.err and now_us or not time.err and time[1] * 1e6 + time[2]
  now_us = now_us or clock_us or fail('the server refuses TIME in scripts, expected AT')
  if saved then restore(saved) end
  local reply, changes
  if units then reply, changes = refund(units) else reply, changes = check(word == 'CHECK', needs) end
  if not changes then return reply end
  if #states == 0 then return write(reply, 'DEL', KEYS[1]) end
  local until_us, late_us = clock_us, 1e6
  for _, state in ipairs(states) do
    local ends_us = ends(state)
    if ends_us > 2 ^ 53 then fail('a bucket that drains in more than 142 years needs the module') end
    until_us, late_us = max(until_us, ends_us + max(0, clock_us - now_us)), max(late_us, floor(longest_us(state) / 8))
  end
  local expires_ms = ceil(until_us / 1000) + floor((late_us - floor(late_us / 8)) / 1000)
  return write(reply, 'SET', KEYS[1], save(), 'PXAT', string.format('%.0f', expires_ms))
end

local ok, reply = pcall(main)
return ok and reply or refusal or error(reply, 0)
