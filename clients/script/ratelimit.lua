-- The limiter of the module `ratelimit` as a script, for servers that load no module. It answers the same, integer by integer:
--
--   EVAL script 1 user:42:script CHECK  [COST n] [COST name=n] [AT us] rule [rule ...]      and PEEK likewise
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
--
-- The module's source, in core/src/algorithm, explains each formula. The names here are the same.

local floor, ceil, min, max, abs, sub = math.floor, math.ceil, math.min, math.max, math.abs, string.sub
local NEVER, MOST_US, MOST_UNITS, MOST_COUNT, DAY_US = math.huge, 2 ^ 52, 1e9, 2 ^ 48 - 1, 86400e6
local now_us, rules, states, refusal = nil, {}, {}, nil

local function fail(why, ...)
  refusal = {err = 'ERR ' .. string.format(why, ...)}
  error(refusal)
end

-- floor(a * b / d) and the remainder. Exact for a and b up to 2^53 and d up to 2^48; a quotient beyond 2^53 is only about right.
local function muldiv(a, b, d)
  local quotient = floor(a / d)
  a, quotient = a - quotient * d, quotient * b
  local times, more, left = floor(b / d), 0, 0
  if a * b < 2 ^ 53 then
    more = floor(a * b / d)
    return quotient + more, a * b - more * d
  end
  b = b - times * d
  for digit = 11, 0, -1 do -- long division, by digits of four bits
    local product = left * 16 + floor(a / 16 ^ digit) % 16 * b
    local part = floor(product / d)
    more, left = more * 16 + part, product - part * d
  end
  return quotient + a * times + more, left
end
local function ms_after(us, since_us) return us == NEVER and -1 or max(0, ceil((us - since_us) / 1000)) end
-- When a state is read: not before its own time, unless the clock stepped back by more than the window (nil).
local function effective_time(at_us, last_us, window_us)
  return last_us <= at_us and at_us or last_us - at_us <= window_us and last_us or nil
end

-- Each algorithm reads a state at a time: the remaining units, when it admits the cost, and a leaky rule's turn.
local bucket, window, fixed, log = {}, {}, {}, {}
local ALGORITHMS = {bucket = bucket, leaky = bucket, interval = fixed, window = window, fixed = fixed, log = log}
local function read_used(used, most, cost, at_us, later_us)
  return max(0, most - used), used + cost <= most and at_us or later_us, 0
end

-- bucket, leaky: a debt of units + rem / period, which drains at limit / period.
bucket.saved = {'last', 'period', 'rem', 'units', 'limit'}
local function drain_us(units, rem, period, limit)
  local us, rest = muldiv(period, units, limit)
  return us + ceil((rest + rem) / limit)
end
function bucket.clears(state, rule)
  local rate = max(rule.limit, state.limit)
  return state.units + state.rem == 0 and 0 or state.last + drain_us(state.units, state.rem, state.period, rate)
end
function bucket.ends(state) return bucket.clears(state, state) end
local function owed_at(state, limit, at_us) -- at a lower limit than its own it drains more slowly, until it ends
  if limit < state.limit and bucket.ends(state) <= at_us then return 0, 0 end
  local units, rem = muldiv(at_us - state.last, limit, state.period)
  units, rem = state.units - units, state.rem - rem
  if rem < 0 then units, rem = units - 1, rem + state.period end
  if units < 0 then return 0, 0 end
  return units, rem
end
function bucket.of_units(rule, _, units) return {units = units, rem = 0, limit = max(rule.limit, 1)} end
function bucket.consumed(state, at_us)
  local units, rem = owed_at(state, state.limit, at_us)
  return units + ceil(rem / state.period)
end
function bucket.read(state, rule, cost, at_us)
  local units, rem = owed_at(state, rule.limit, at_us)
  local used, over, admits_us, turn_us = units + ceil(rem / state.period), units + cost - rule.capacity, at_us, 0
  if rule.limit == 0 then return 0, NEVER, 0 end
  if used + cost > rule.capacity then admits_us = at_us + drain_us(over, rem, state.period, rule.limit) end
  if state.kind == 'leaky' then turn_us = at_us + drain_us(units, rem, state.period, rule.limit) end
  local ends_us = rule.limit < state.limit and used > 0 and bucket.ends(state) or NEVER
  return max(0, rule.capacity - used), min(admits_us, ends_us), min(turn_us, ends_us)
end
function bucket.consume(state, rule, at_us)
  local units, rem = owed_at(state, rule.limit, at_us)
  if units + ceil(rem / state.period) + rule.cost <= rule.capacity then
    units = units + rule.cost
  elseif units < rule.capacity then
    units, rem = rule.capacity, 0
  end
  state.units, state.rem, state.last = units, rem, at_us
  if rule.limit > 0 then state.limit = rule.limit end
end
function bucket.reshape(state, reshaped) -- to fractions of another period, rounded up
  local rem, rest = muldiv(state.rem, reshaped.period, state.period)
  rem = rem + ceil(rest / state.period)
  local carry = rem >= reshaped.period and 1 or 0
  reshaped.units, reshaped.rem = state.units + carry, rem * (1 - carry)
end
function bucket.refund(state, units, at_us)
  local consumed = bucket.consumed(state, at_us)
  if consumed > units then state.units = state.units - units else state.units, state.rem = 0, 0 end
  return min(units, consumed)
end

-- window: res + 1 counts, newest first, of sub-intervals of `period` ticks, which are 1 / res microseconds each. Its shape is res.
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
  for i = 1, weighted - 1 do full = full + state.counts[i] end
  return full, state.counts[weighted] or 0
end
function window.of_units(rule, _, units)
  local counts = {min(units, MOST_COUNT)}
  for i = 2, rule.shape + 1 do counts[i] = 0 end
  return {counts = counts}
end
function window.consumed(state, at_us) -- cur + old * (period - elapsed) / period, rounded up
  local _, elapsed, shift = place(state, at_us)
  local full, old = counted(state, shift)
  local units, rem = muldiv(old, state.period - elapsed, state.period)
  return full + units + ceil(rem / state.period)
end
function window.read(state, rule, cost, at_us)
  local remaining, admits_us = read_used(window.consumed(state, at_us), rule.limit, cost, at_us, NEVER)
  local index, _, shift = place(state, at_us)
  local allowance = max(0, rule.limit - cost)
  while admits_us == NEVER do -- the first sub-interval in which it fits, and where in it
    local full, old = counted(state, shift)
    if full <= allowance then
      local elapsed = old == 0 and 0 or max(0, state.period - muldiv(allowance - full, state.period, old))
      admits_us = max(at_us, micros(state, index, elapsed))
    end
    index, shift = index + 1, shift + 1
  end
  return remaining, admits_us, 0
end
function window.consume(state, rule, at_us)
  local _, _, shift = place(state, at_us)
  for i = state.shape + 1, 1, -1 do state.counts[i] = state.counts[i - shift] or 0 end
  state.last, state.counts[1] = at_us, min(state.counts[1] + rule.cost, MOST_COUNT)
end
function window.ends(state)
  for i, count in ipairs(state.counts) do
    if count > 0 then return micros(state, muldiv(state.last, state.shape, state.period) + state.shape + 2 - i, 0) end
  end
  return 0
end
function window.refund(state, units, at_us)
  local _, _, shift = place(state, at_us)
  local left = units
  for i = 1, state.shape + 1 - shift do
    local taken = min(left, state.counts[i])
    state.counts[i], left = state.counts[i] - taken, left - taken
  end
  return units - left
end

-- fixed, and bucket with refill=interval: one count. Its shape is the time zone, and in two bits whether windows begin at the epoch
-- (0), on Mondays (1), with months (2) or at the first request (3). Months: Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fixed.saved = {'last', 'period', 'shape', 'start', 'count'}
local function days_before(year) return 365 * year + floor(year / 4) - floor(year / 100) end
local function month_start(local_us, later) -- of the month that contains a local time, or of a later one
  local days = floor(local_us / DAY_US) + 719468
  local day = days % 146097
  local year = floor((day - floor(day / 1460) + floor(day / 36524) - floor(day / 146096)) / 365)
  local month = floor((5 * (day - days_before(year)) + 2) / 153) + later -- from March
  year = 400 * floor(days / 146097) + year + floor(month / 12)
  days = 146097 * floor(year / 400) + days_before(year % 400) + floor((153 * (month % 12) + 2) / 5)
  return (days - 719468) * DAY_US
end
local function ahead_us(shape) return (floor(shape / 4) - 840) * 60e6 end
local function window_start(shape, period, at_us)
  local anchor, local_us = shape % 4, at_us + ahead_us(shape)
  if anchor == 3 then return at_us end
  if anchor == 2 then return month_start(local_us, 0) - ahead_us(shape) end
  return at_us - (local_us - anchor * 4 * DAY_US) % period -- 1970-01-05 was a Monday
end
function fixed.over(state)
  if state.shape % 4 ~= 2 then return state.start + state.period end
  return month_start(state.start + ahead_us(state.shape), 1) - ahead_us(state.shape)
end
function fixed.of_units(rule, last_us, units)
  return {start = window_start(rule.shape, rule.period, last_us), count = min(units, MOST_COUNT)}
end
function fixed.consumed(state, at_us) return at_us >= fixed.over(state) and 0 or state.count end
function fixed.ends(state) return state.count == 0 and 0 or fixed.over(state) end
function fixed.read(state, rule, cost, at_us)
  return read_used(fixed.consumed(state, at_us), rule.capacity, cost, at_us, fixed.over(state))
end
function fixed.consume(state, rule, at_us)
  local count, most = fixed.consumed(state, at_us), state.kind == 'interval' and rule.capacity or MOST_COUNT
  if count == 0 then state.start = window_start(state.shape, state.period, at_us) end
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
  local most = {unpack(needs)}
  for _, other in ipairs(past) do for i = 1, 3 do most[i] = max(most[i], other[i]) end end
  return most
end
local function covers(needs, other) return needs[1] >= other[1] and needs[2] >= other[2] and needs[3] >= other[3] end
local function set_entries(state, times, units) -- without those that have no units left
  state.times, state.units = {}, {}
  for i, us in ipairs(times) do
    if units[i] ~= 0 then table.insert(state.times, us); table.insert(state.units, units[i]) end
  end
  state.last = times[1] and state.times[#state.times] or 0
end
function log.of_units() return {times = {}, units = {}, past = {}, needs = {0, 0, 0}} end
function log.ends(state)
  local until_us = #state.times == 0 and 0 or state.last + state.needs[1]
  for _, past in ipairs(state.past) do until_us = max(until_us, past[4]) end
  return until_us
end
function log.clears(state, rule)
  local newest = #state.times
  while newest > 0 and state.units[newest] < 0 and not rule.all do newest = newest - 1 end
  return newest == 0 and 0 or min(state.times[newest] + rule.period, rule.period > state.needs[1] and log.ends(state) or NEVER)
end
function log.read(state, rule, cost, at_us)
  local ends_us = rule.period > state.needs[1] and log.ends(state) or NEVER
  if ends_us <= at_us then return rule.limit, at_us, 0 end
  local used, stays, leaves_us = 0, max(0, rule.limit - cost), nil
  for i = #state.times, 1, -1 do
    if state.times[i] <= at_us - rule.period then break end
    if state.units[i] > 0 or rule.all then used = used + abs(state.units[i]) end
    if used > stays then leaves_us = leaves_us or state.times[i] end
  end
  if cost == 0 and most_needs(state.needs, state.past)[2] <= rule.limit then leaves_us = nil end
  return read_used(used, rule.limit, cost, at_us, leaves_us and min(leaves_us + rule.period, ends_us) or at_us)
end
local function remember(state, needs, at_us)
  -- The module keeps the window in four bytes, rounded up to a second beyond 24 days.
  local latest = {needs[1] < 2 ^ 31 * 1000 and needs[1] or ceil(needs[1] / 1e6) * 1e6, needs[2], needs[3]}
  local previous, past, known = state.needs, {}, false
  if #state.past == 0 and covers(latest, previous) and covers(previous, latest) then return end
  if log.ends(state) <= at_us then
    set_entries(state, {}, {})
  else
    previous[4] = state.last + previous[1]
    for _, other in ipairs(state.past) do known = known or other[4] >= previous[4] and covers(other, previous) end
    if not known then table.insert(state.past, previous) end
    for _, other in ipairs(state.past) do
      if other[4] > at_us and not covers(latest, other) then table.insert(past, other) end
    end
  end
  if #past > 8 then fail('more than 8 sets of log rules are in use on one key: that needs the module') end
  state.needs, state.past = latest, past
end
function log.consume(state, rule, at_us, needs, denied)
  remember(state, needs, at_us)
  local window_us, units, admitted = unpack(most_needs(needs, state.past))
  local times, amounts, place = state.times, state.units, #state.times + 1
  while not denied and times[place - 1] == at_us and amounts[place - 1] < 0 do place = place - 1 end
  table.insert(times, place, at_us)
  table.insert(amounts, place, denied and -rule.cost or rule.cost)
  for i = #times, 1, -1 do -- keeps the newest units, and the newest admitted ones
    local sign, amount = amounts[i] < 0 and -1 or 1, times[i] > at_us - window_us and abs(amounts[i]) or 0
    local kept = max(min(amount, units), sign > 0 and min(amount, admitted) or 0)
    units, admitted, amounts[i] = max(0, units - amount), sign > 0 and max(0, admitted - kept) or admitted, sign * kept
  end
  set_entries(state, times, amounts)
end
function log.step_back(state, window_us) -- what a longer window still needs moves to just outside of this one
  local latest_us, times, units = now_us - window_us, {}, {}
  if latest_us < 0 or not effective_time(now_us, state.last, most_needs(state.needs, state.past)[1]) then
    state.needs, state.past = {0, 0, 0}, {}
    return set_entries(state, {}, {})
  end
  for pass = 1, 3 do
    for i, us in ipairs(state.times) do
      if pass == (us < latest_us and 1 or state.units[i] > 0 and 2 or 3) then
        table.insert(times, min(us, latest_us)); table.insert(units, state.units[i])
      end
    end
  end
  for _, past in ipairs(state.past) do past[4] = min(past[4], latest_us + past[1]) end
  set_entries(state, times, units)
end
function log.refund(state, units, at_us, window_us)
  local left, i = units, #state.times
  while i > 0 and left > 0 and state.times[i] > at_us - window_us do
    local last = i
    while state.times[i - 1] == state.times[i] do i = i - 1 end
    for _, sign in ipairs({1, -1}) do -- of equal times, admitted requests first
      for j = i, last do
        local taken = max(0, min(left, state.units[j] * sign))
        state.units[j], left = state.units[j] - taken * sign, left - taken
      end
    end
    i = i - 1
  end
  set_entries(state, state.times, state.units)
  return units - left
end

-- The states of the key. A rule reads one by its name, or else by its algorithm, period and shape.
local KINDS = {'log', 'window', 'fixed', 'bucket', 'leaky', 'interval'}
local function save()
  local all = {}
  for i, state in ipairs(states) do
    local saved, weighted = {0, state.name}, false
    for code, kind in ipairs(KINDS) do if kind == state.kind then saved[1] = code end end
    for j, us in ipairs(state.times or {}) do
      state.times[j], weighted = state.last - us, weighted or state.units[j] ~= 1
    end
    if state.times and not weighted then state.units = 1 end
    for _, field in ipairs(ALGORITHMS[state.kind].saved) do table.insert(saved, state[field]) end
    all[i] = saved
  end
  return 'r\1' .. cmsgpack.pack(all)
end
local function restore(text)
  for i, saved in ipairs(cmsgpack.unpack(sub(text, 3))) do
    local state = {kind = KINDS[saved[1]], name = saved[2], shape = 0}
    for j, field in ipairs(ALGORITHMS[state.kind].saved) do state[field] = saved[j + 2] end
    if state.units == 1 and state.times then state.units = {} end
    for j, age in ipairs(state.times or {}) do
      state.times[j], state.units[j] = state.last - age, state.units[j] or 1
    end
    states[i] = state
  end
end
local function ends(state) return ALGORITHMS[state.kind].ends(state) end
local function longest_us(state) return state.kind == 'log' and most_needs(state.needs, state.past)[1] or state.period end
local function family(it) return it.kind == 'interval' and 'bucket' or it.kind end
local function fits(state, rule)
  local stays = rule.limit == 0 and rule.name ~= '' and (rule.kind == 'bucket' or rule.kind == 'leaky') and family(state) == rule.kind
  return stays or state.kind == rule.kind and (rule.kind == 'log' or state.period == rule.period and state.shape == rule.shape)
end
local function belongs(state, rule)
  if state.kind == 'log' or rule.kind == 'log' then return state.kind == rule.kind end
  return state.name == rule.name and (rule.name ~= '' or fits(state, rule))
end
local function find(rule)
  for i, state in ipairs(states) do
    if belongs(state, rule) then return state, i end
  end
end
local function keep(wanted)
  for i = #states, 1, -1 do
    if not wanted(states[i]) then table.remove(states, i) end
  end
end
local function new(rule, last_us, units)
  local state = ALGORITHMS[rule.kind].of_units(rule, last_us, units)
  state.kind, state.name, state.period, state.shape = rule.kind, rule.kind == 'log' and '' or rule.name, rule.period, rule.shape
  state.last = rule.kind == 'log' and 0 or last_us
  return state
end
local function seen_by(state, rule, at_us) -- reshaped if the rule has another shape; nil if it ended or is of another algorithm
  if fits(state, rule) then return state end
  if family(state) ~= family(rule) or ends(state) <= at_us then return nil end
  local reshaped = new(rule, state.last, ALGORITHMS[state.kind].consumed(state, state.last))
  if state.rem and reshaped.rem then bucket.reshape(state, reshaped) end
  return reshaped
end
local function read(rule, at_us) -- what a rule reads, and where
  local state = find(rule)
  local read_us = state and effective_time(at_us, state.last, rule.window)
  local seen = read_us and seen_by(state, rule, read_us)
  return seen, seen and read_us or at_us, seen and seen ~= state and ends(state) or NEVER
end
local function decide(rule, at_us)
  local seen, read_us, ends_us = read(rule, at_us)
  local remaining, admits_us, turn_us = rule.capacity, read_us, 0
  if seen then remaining, admits_us, turn_us = ALGORITHMS[seen.kind].read(seen, rule, rule.cost, read_us) end
  local decision = {denied = min(admits_us, ends_us) > read_us, remaining = rule.limit == 0 and 0 or remaining, rule = rule, cost = rule.cost}
  decision.wait = ms_after(decision.denied and min(admits_us, ends_us) or min(turn_us, ends_us), at_us)
  if rule.cost > rule.capacity then
    decision.denied, decision.wait = true, -1
  elseif rule.limit == 0 then
    decision.denied, decision.wait = false, 0
  end
  return decision
end
local function reset_ms(rule)
  local seen, read_us, ends_us = read(rule, now_us)
  if not seen then return 0 end
  local clears_us = (ALGORITHMS[seen.kind].clears or ends)(seen, rule)
  return clears_us <= read_us and 0 or ms_after(min(clears_us, ends_us), now_us)
end

-- Consumes for an admitted check, or charges a denied one to the rules that count all.
local function state_for(rule)
  local state, i = find(rule)
  if state and not fits(state, rule) and family(state) == family(rule) then
    states[i] = seen_by(state, rule, now_us) or new(rule, now_us, 0)
  elseif not state or not fits(state, rule) then
    keep(function(other) -- not what another rule of the name had, nor what did not matter for two windows
      if rule.name ~= '' and other.name == rule.name then return false end
      for _, of in ipairs(rules) do if belongs(other, of) then return true end end
      return ends(other) > now_us - 2 * longest_us(other)
    end)
    table.insert(states, new(rule, now_us, 0))
  end
  return find(rule)
end
local function consume(denied, needs)
  local log_rule, before = nil, #states
  for _, rule in ipairs(rules) do
    local consumes = rule.cost > 0 and (rule.all or not denied)
    if consumes and rule.kind == 'log' then
      keep(function(state) return rule.name == '' or state.name ~= rule.name end)
      log_rule = log_rule or rule
    elseif consumes then
      local state, i = state_for(rule)
      local at_us = effective_time(now_us, state.last, rule.period)
      if not at_us then states[i] = new(rule, now_us, 0) end
      ALGORITHMS[states[i].kind].consume(states[i], rule, at_us or now_us)
    end
  end
  if log_rule then
    local state = state_for(log_rule)
    local at_us = effective_time(now_us, state.last, needs[1])
    if not at_us then log.step_back(state, needs[1]) end
    log.consume(state, log_rule, at_us or now_us, needs, denied)
  end
  keep(function(state) return ends(state) > 0 end)
  if #states > max(256, before) then fail("the key would hold %d states, expected at most 256", #states) end
end

local function precedes(one, other) -- as the answer: the longer denial, or else what admits its own cost fewer times
  local function length(decision) return decision.wait < 0 and NEVER or decision.wait end
  if one.denied or other.denied then return one.denied and (not other.denied or length(one) > length(other)) end
  if one.cost == other.cost then return one.remaining < other.remaining end
  if one.cost == 0 or other.cost == 0 then return other.cost == 0 end
  local mine, rest = muldiv(one.remaining, other.cost, 2 ^ 30)
  local others, others_rest = muldiv(other.remaining, one.cost, 2 ^ 30)
  return mine < others or mine == others and rest < others_rest
end
-- A rule ignores a state that lies more than a window ahead of a clock that stepped back, and sees it again later: the wait ends
-- outside of all denials.
local function until_all_admit(wait)
  local denials = {}
  for _, rule in ipairs(rules) do
    local state = find(rule)
    local from = not rule.shadow and state and ms_after(state.last - rule.window, now_us) or 0
    if from > 0 then table.insert(denials, {from = from, of = decide(rule, now_us + from * 1000)}) end
  end
  table.sort(denials, function(one, other) return one.from < other.from end)
  for _, denial in ipairs(denials) do
    if wait < 0 or denial.from > wait then break end
    if denial.of.denied then wait = denial.of.wait < 0 and -1 or max(wait, denial.from + denial.of.wait) end
  end
  return wait
end
local function check(may_change, needs)
  local decisions, denied, chargeable, changes, best, turn = {}, false, true, false, nil, 0
  for i, rule in ipairs(rules) do
    decisions[i] = decide(rule, now_us)
    denied = denied or decisions[i].denied and not rule.shadow
    chargeable = chargeable and (rule.shadow or rule.cost <= rule.capacity)
  end
  for _, rule in ipairs(rules) do
    changes = changes or may_change and rule.cost > 0 and (not denied or chargeable and rule.all)
  end
  if changes then consume(denied, needs) end
  for i, rule in ipairs(rules) do
    local decision = changes and denied and decide(rule, now_us) or decisions[i]
    if changes and not denied then decision.remaining = max(0, decision.remaining - rule.cost) end
    if denied and not decision.denied then decision.wait = 0 end
    if not rule.shadow then
      turn, best = max(turn, decision.wait), (not best or precedes(decision, best)) and decision or best
    end
  end
  if not best then return {0, -1, -1, 0, 0}, changes end
  local wait = denied and until_all_admit(best.wait) or turn
  return {denied and 1 or 0, best.rule.capacity, best.remaining, wait, reset_ms(best.rule)}, changes
end
local function refund(units)
  local most = 0
  for _, state in ipairs(states) do
    local window_us = #rules == 0 and longest_us(state) or nil
    for _, rule in ipairs(rules) do
      if belongs(state, rule) and family(state) == family(rule) then window_us = rule.window; break end
    end
    local at_us = window_us and effective_time(now_us, state.last, window_us)
    if at_us and ends(state) > at_us then
      most = max(most, (ALGORITHMS[state.kind].refund(state, units, at_us, window_us)))
    end
  end
  keep(function(state) return ends(state) > 0 end)
  return most, most > 0
end

-- The text of a rule.
local PERIODS_US = {ms = 1e3, month = 31 * DAY_US}
for us, names in pairs({[1e6] = 's sec secs second seconds', [60e6] = 'm min mins minute minutes', [3600e6] = 'h hour hours',
  [DAY_US] = 'd day days', [7 * DAY_US] = 'w week weeks'}) do
  for name in string.gmatch(names, '%a+') do PERIODS_US[name] = us end
end
local OPTIONS = {
  res = {of = 'window', 1, 60}, burst = {of = 'bucket', 1, MOST_UNITS}, queue = {of = 'leaky', 0, MOST_UNITS}, cost = {0, MOST_UNITS},
  align = {of = 'fixed', epoch = 0, first = 3}, refill = {of = 'bucket', interval = 3}, count = {all = 1, allowed = 0},
  tz = {of = 'fixed'}, name = {}, shadow = {},
}
local function shown(text)
  text = string.gsub(text, '[^ -~]', function(c) return string.format('\\x%02x', string.byte(c)) end)
  return "'" .. sub(text, 1, 64) .. (#text > 64 and "...'" or "'")
end
local function number(text, least, most) -- a whole number between bounds, or nil
  local n = string.find(text, '^%d+$') and tonumber(text)
  return n and n >= least and n <= most and n or nil
end
local function value_of(name, text)
  if OPTIONS[name][1] then return number(text, unpack(OPTIONS[name])) end
  if name == 'name' then return #text <= 32 and string.match(text, '^[%w_.-]+$') or nil end
  if name ~= 'tz' then return OPTIONS[name][text] end
  local sign, hours, minutes = string.match(text, '^([+-])(%d%d):([0-5]%d)$')
  local east = sign and (hours * 60 + minutes) * (sign == '-' and -1 or 1)
  return east and abs(east) <= 840 and east or nil
end
local function parse(text)
  local function wrong(why, ...) fail('rule %s: ' .. why, shown(text), ...) end
  local function refuse(what) wrong('%s needs the module', what) end
  local kind = string.match(text, '^([^:/]*):') or 'log'
  if sub(text, 1, 1) == '@' or kind == 'slots' then refuse(kind == 'slots' and kind or 'a policy') end
  if not ALGORITHMS[kind] or kind == 'interval' then wrong('unknown algorithm %s, expected log, window, fixed, bucket or leaky', shown(kind)) end
  local limit, count, unit, rest = string.match(sub(text, (string.find(text, '^%a+:') and #kind + 2 or 1)), '^(%d+)/(%d*)([^,]*)(.*)$')
  if not number(limit or '', 0, MOST_UNITS) then wrong('expected limit/period such as 20/1m, the limit 0..1000000000') end
  local rule, given = {text = text, kind = kind, limit = tonumber(limit)}, {}
  rule.period = (PERIODS_US[unit] or 0) * (count == '' and 1 or tonumber(count))
  if rule.period < 1e3 or rule.period > 366 * DAY_US then wrong('the period is %s, expected an integer and a unit, 1ms..366d', shown(count .. unit)) end
  if unit == 'month' and (kind ~= 'fixed' or rule.period > 31 * DAY_US) then wrong("the period is %s, expected 'month' for fixed, or days", shown(count .. unit)) end
  for option in string.gmatch(rest, ',([^,]*)') do
    local name, value = string.match(option, '^([^=]*)=?(.*)$')
    if name == 'ban' or name == 'keep' then refuse(name) end
    if not OPTIONS[name] or (OPTIONS[name].of or kind) ~= kind then wrong('unknown option %s of %s', shown(name), kind) end
    if given[name] then wrong('option %s is given twice, expected once', name) end
    if name == 'shadow' then given.shadow = option == 'shadow' or nil else given[name] = value_of(name, value) end
    if given[name] == nil or name ~= 'shadow' and #option == #name then wrong('%s is %s', name, shown(value)) end
  end
  rule.name, rule.all, rule.shadow, rule.cost = given.name or '', given.count == 1, given.shadow, given.cost
  rule.capacity, rule.shape = given.burst or rule.limit, given.res or kind == 'window' and 1 or 0
  if kind == 'leaky' then rule.capacity = (given.queue or rule.limit) + 1 end
  if kind == 'log' and rule.limit > 100000 then wrong('a log of %d entries, expected at most 100000; use window or bucket instead', rule.limit) end
  if given.align == 3 and unit == 'month' then wrong("'month' with align=first, expected align=epoch or a period in days") end
  if kind == 'fixed' then
    local anchor = unit == 'month' and 2 or PERIODS_US[unit] == 7 * DAY_US and 1 or 0
    rule.shape = ((given.tz or 0) + 840) * 4 + (given.align == 3 and 3 or anchor)
  elseif given.refill then
    rule.kind, rule.shape = 'interval', 840 * 4 + 3
  end
  if rule.limit == 0 then rule.capacity = 0 end
  if family(rule) == 'bucket' or kind == 'leaky' then
    if rule.capacity * rule.period > MOST_US * rule.limit then refuse('a bucket that drains in more than 142 years') end
  end
  return rule
end

local function main()
  local word, at, by_name, unused, units = string.upper(ARGV[1] or ''), 2, {}, {}, nil
  if #KEYS ~= 1 or sub(KEYS[1], -7) ~= ':script' then fail("the key is %s, expected one that ends with ':script'", shown(KEYS[1] or '')) end
  if word == 'REFUND' then
    units, at = number(ARGV[2] or '', 0, MOST_UNITS) or fail('units is %s, expected an integer 0..1000000000', shown(ARGV[2] or '')), 3
  elseif word ~= 'CHECK' and word ~= 'PEEK' and (word ~= 'RESET' or #ARGV > 1) then
    fail('%s needs the module, expected CHECK, PEEK, REFUND or RESET', shown(table.concat(ARGV, ' ')))
  end
  while at <= #ARGV do
    local option, value = string.upper(ARGV[at]), ARGV[at + 1] or ''
    if option == 'FULL' or option == 'META' or option == 'HOLD' or string.find(value, '^%d+%.%.%d+$') then
      fail('%s needs the module', option == 'COST' and 'COST with a range' or option)
    elseif option == 'AT' then
      if now_us then fail('AT is given twice, expected once') end
      now_us = number(value, 0, MOST_US) or fail('AT is %s, expected an integer 0..%.0f; later times need the module', shown(value), MOST_US)
    elseif option == 'COST' and not units then
      local name, cost = string.match(value, '^([%w_.-]+)=(.*)$')
      cost = number(cost or value, 0, MOST_UNITS) or fail('COST is %s, expected an integer 0..1000000000 or name=integer', shown(value))
      if by_name[name or ''] then fail('COST %s is given twice, expected once', name or '') end
      by_name[name or ''] = cost
      if name then unused[name] = true end
    else
      break
    end
    at = at + 2
  end
  local needs, log_cost = {0, 0, 0}, nil
  for i = at, #ARGV do
    local rule = parse(ARGV[i])
    for _, other in ipairs(rules) do
      local same = other.kind == rule.kind and other.period == rule.period and other.shape == rule.shape
      if other.name == rule.name and (rule.name ~= '' or same) then
        fail('rule %s: same identity as rule %s, give one of them another name=', shown(rule.text), shown(other.text))
      end
    end
    rule.cost = rule.name ~= '' and by_name[rule.name] or rule.cost or by_name[''] or 1
    if rule.kind == 'log' then
      needs = most_needs(needs, {{rule.period, rule.limit, rule.all and 0 or 1}})
      if not units and rule.cost ~= (log_cost or rule.cost) then
        fail('rule %s: costs %d, but another log rule costs %d: they share one log', shown(rule.text), rule.cost, log_cost)
      end
      log_cost = rule.cost
    end
    rules[#rules + 1], unused[rule.name] = rule, nil
  end
  if #rules > 32 then fail('%d rules, expected at most 32', #rules) end
  if #rules == 0 and (word == 'CHECK' or word == 'PEEK') then fail('wrong number of arguments, expected a rule such as 20/1m') end
  if next(unused) then fail('COST %s= is for no rule here, expected a rule with name=%s', next(unused), next(unused)) end
  if needs[3] > 0 then needs[3] = needs[2] end
  for _, rule in ipairs(rules) do rule.window = rule.kind == 'log' and needs[1] or rule.period end

  local saved = redis.pcall('GET', KEYS[1])
  if type(saved) == 'table' or saved and sub(saved, 1, 2) ~= 'r\1' then
    return {err = 'WRONGTYPE the key holds no value of this version of the script; a value of the module needs the module'}
  end
  if word == 'RESET' then return redis.call('DEL', KEYS[1]) end
  local time = redis.pcall('TIME')
  local clock_us = time.err and now_us or not time.err and time[1] * 1e6 + time[2]
  now_us = now_us or clock_us or fail('the server refuses TIME in scripts, expected AT')
  if saved then restore(saved) end
  local reply, changes
  if units then reply, changes = refund(units) else reply, changes = check(word == 'CHECK', needs) end
  if not changes then return reply end
  if #states == 0 then
    redis.call('DEL', KEYS[1])
    return reply
  end
  local until_us, late_us = clock_us, 1e6
  for _, state in ipairs(states) do
    if ends(state) > 2 ^ 53 then fail('a bucket that drains in more than 142 years needs the module') end
    until_us = max(until_us, ends(state) + max(0, clock_us - now_us))
    late_us = max(late_us, floor(longest_us(state) / 8))
  end
  local expires_ms = ceil(until_us / 1000) + floor((late_us - floor(late_us / 8)) / 1000)
  local set = redis.pcall('SET', KEYS[1], save(), 'PXAT', string.format('%.0f', expires_ms))
  return set.err and set or reply
end

local ok, reply = pcall(main)
if ok then return reply end
return refusal or error(reply, 0)
