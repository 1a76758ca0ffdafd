-- The limiter of the module `ratelimit` as a script, for servers that load no module. It gives the same answers, integer
-- by integer:
--
--   EVAL script 1 user:42:script CHECK|PEEK [COST n] [COST name=n] [AT us] rule [rule ...]
--                                REFUND units [AT us] [rule ...]
--                                RESET
--
-- Words and replies are those of RL.CHECK, RL.PEEK, RL.REFUND and RL.RESET. Rules are log, window, fixed, bucket and
-- leaky with every option but `ban` and `keep`. Anything else is an error that says that it needs the module.
--
-- KEY    ends with `:script`, which the caller appends: the script never meets a value of the module or of the
--        application. A hash tag before it keeps its meaning, as in `{user:42}:login:script`. No other key is touched.
-- STATE  is one string: a version, then one state an identity. It expires as the module's does: once nothing in it
--        counts, or up to an eighth of the longest window (at least a second) later. A denial writes nothing, except
--        for `count=all`.
-- CLOCK  is the server's; if the server refuses TIME in scripts, AT gives the caller's. The time of a state never runs
--        backwards.
-- EXACT  Numbers are exact up to 2^53. A larger one is kept as whole units and a remainder in fractions of the period.
--        Times, and the time in which a full bucket drains, are refused beyond 2^52 microseconds: the year 2112, and
--        142 years.
-- SPEED  Lua builds a script's functions at each call, so those of an algorithm are built only where one is needed.
--
-- The module's source, in core/src/algorithm, explains each formula. The names here are the same.
local floor, ceil, min, max, find, match = math.floor, math.ceil, math.min, math.max, string.find, string.match
local NEVER, MOST_US, MOST_UNITS, MOST_COUNT, DAY_US = math.huge, 2 ^ 52, 1e9, 2 ^ 48 - 1, 86400e6
local now_us
local rules = {} -- in the order of the call, and by the identity of the state that each reads
local log_needs = {0, 0, 0} -- the longest window of the log rules, their largest limit, and of those without `count=all`
local states, loaded = {}, 0 -- by identity, and how many the key held

local function fail(why, ...) error('ERR ' .. string.format(why, ...), 0) end

-- floor(a * b / d) and the remainder. Exact for a and b up to 2^53 and d up to 2^48; a quotient beyond 2^53 is only
-- about right.
local function muldiv(a, b, d)
  if a * b < 2 ^ 53 then return floor(a * b / d), a * b % d end
  local times = floor(b / d)
  local quotient, rest = muldiv(floor(a / 16), b - times * d, d)
  rest = rest * 16 + a % 16 * (b - times * d)
  return quotient * 16 + floor(rest / d) + times * a, rest % d
end
-- ceil((a * b + rest) / d)
local function muldiv_up(a, b, d, rest)
  local quotient, remainder = muldiv(a, b, d)
  return quotient + ceil((remainder + rest) / d)
end
local function ms_after(us, since_us) return max(0, ceil((us - since_us) / 1000)) end
-- When a state is read: not before its own time, unless the clock stepped back by more than the window (nil).
local function effective_time(at_us, last_us, window_us)
  return last_us - at_us <= window_us and max(at_us, last_us) or nil
end

-- The algorithms: each builds the class of its states. A class has
--   fields     the fields of a state that are saved
--   of_units   makes the fields of a state of these units; `old` is the state of another shape that had them
--   used       the units that count for a rule at a time, rounded up; for the state itself, by the rule that consumed last
--   admits     when the rule's cost fits, if it does not yet
--   ends       when nothing in it counts any more by the rules that consumed; 0: it is empty
--   consume    adds the rule's cost, as far as the algorithm counts
--   refund     takes off the newest units, and returns how many
--   turn, clears, step_back, flip   only where an algorithm needs them
local ALGORITHMS = {}

-- bucket, leaky: a debt of units + rem / period, which drains at limit / period.
function ALGORITHMS.bucket()
  local bucket = {fields = {'kind', 'name', 'shape', 'period', 'last', 'units', 'rem', 'limit'}, drains = true}
  local function owed(self, limit, at_us) -- at a lower limit than its own it drains more slowly, until it ends
    local drained, drained_rem = muldiv(at_us - self.last, limit, self.period)
    local units, rem = self.units - drained, self.rem - drained_rem
    if rem < 0 then units, rem = units - 1, rem + self.period end
    if units < 0 or limit < self.limit and self:ends() <= at_us then return 0, 0 end
    return units, rem
  end
  local function drained_to(self, left, rule, at_us) -- when it owes no more than the units that are left
    local units, rem = owed(self, rule.limit, at_us)
    local drained_us = at_us + muldiv_up(self.period, units - left, rule.limit, rem)
    return rule.limit < self.limit and min(drained_us, self:ends()) or drained_us
  end
  function bucket.of_units(rule, _, units, old)
    local debt = {units = units, rem = 0, limit = max(rule.limit, 1)}
    local rem = old and old.rem and muldiv_up(old.rem, rule.period, old.period, 0) -- in fractions of this period
    if rem and rem < rule.period then debt.units, debt.rem = old.units, rem end
    return debt
  end
  function bucket:used(rule, at_us)
    local units, rem = owed(self, rule.limit, at_us)
    return units + min(rem, 1)
  end
  function bucket:admits(rule, at_us) return drained_to(self, rule.capacity - rule.cost, rule, at_us) end
  function bucket:turn(rule, at_us) return self.kind == 'leaky' and drained_to(self, 0, rule, at_us) or 0 end
  function bucket:clears(rule)
    if self.units + self.rem == 0 then return 0 end
    return self.last + muldiv_up(self.period, self.units, max(rule.limit, self.limit), self.rem)
  end
  function bucket:ends() return self:clears(self) end
  function bucket:consume(rule, at_us)
    local units, rem = owed(self, rule.limit, at_us)
    if units + min(rem, 1) + rule.cost <= rule.capacity then
      units = units + rule.cost
    elseif units < rule.capacity then
      units, rem = rule.capacity, 0
    end
    self.units, self.rem, self.last = units, rem, at_us
    if rule.limit > 0 then self.limit = rule.limit end
  end
  function bucket:refund(units, at_us)
    local used = self:used(self, at_us)
    if used > units then
      self.units = self.units - units
    else
      self.units, self.rem = 0, 0
    end
    return min(units, used)
  end
  return bucket
end
ALGORITHMS.leaky = ALGORITHMS.bucket

-- window: up to res + 1 counts, newest first, of sub-intervals of `period` ticks, which are 1 / res microseconds. Its
-- shape is res. The oldest count is weighted by how much of its sub-interval the window still covers.
function ALGORITHMS.window()
  local window = {fields = {'kind', 'name', 'shape', 'period', 'last', 'counts'}}
  -- The sub-interval, the ticks since its start, and how many later it is than the newest count's.
  local function place(self, at_us)
    local index, elapsed = muldiv(at_us, self.shape, self.period)
    return index, elapsed, index - (muldiv(self.last, self.shape, self.period))
  end
  local function counted(self, shift) -- the units that count in full, and the weighted ones
    local full, weighted = 0, self.shape - shift + 1
    for i = 1, min(weighted - 1, #self.counts) do full = full + self.counts[i] end
    return full, self.counts[weighted] or 0
  end
  function window.of_units(_, _, units) return {counts = {min(units, MOST_COUNT)}} end
  function window:used(_, at_us)
    local _, elapsed, shift = place(self, at_us)
    local full, old = counted(self, shift)
    return full + muldiv_up(old, self.period - elapsed, self.period, 0)
  end
  function window:admits(rule, at_us) -- in the first sub-interval in which the cost fits, once the old units weigh less
    local index, _, shift = place(self, at_us)
    local full, old = counted(self, shift)
    while full + rule.cost > rule.limit do
      index, shift = index + 1, shift + 1
      full, old = counted(self, shift)
    end
    local elapsed = old > 0 and self.period - muldiv(rule.limit - rule.cost - full, self.period, old) or 0
    return max(at_us, muldiv_up(index, self.period, self.shape, max(0, elapsed)))
  end
  function window:ends()
    local age = 1
    while self.counts[age] == 0 do age = age + 1 end
    local index = muldiv(self.last, self.shape, self.period)
    return self.counts[age] and muldiv_up(index + self.shape + 2 - age, self.period, self.shape, 0) or 0
  end
  function window:consume(rule, at_us)
    local _, _, shift = place(self, at_us)
    local counts = self.counts
    for i = min(#counts + shift, self.shape + 1), 1, -1 do counts[i] = counts[i - shift] or 0 end
    self.last, counts[1] = at_us, min(counts[1] + rule.cost, MOST_COUNT)
  end
  function window:refund(units, at_us)
    local left, _, _, shift = units, place(self, at_us)
    for i = 1, min(#self.counts, self.shape + 1 - shift) do
      local taken = min(left, self.counts[i])
      self.counts[i], left = self.counts[i] - taken, left - taken
    end
    return units - left
  end
  return window
end

-- fixed, and bucket with refill=interval: the count of a window that is over at a time. The shape is the time zone, and
-- in two bits whether windows begin at the epoch (0), on Mondays (1), with months (2) or at the first request (3).
function ALGORITHMS.fixed()
  local fixed = {fields = {'kind', 'name', 'shape', 'period', 'last', 'over', 'count'}}
  -- From March of the year 0 until a month that is counted from there; Hinnant, "chrono-Compatible Low-Level Date
  -- Algorithms". 1970 began 719468 days after it.
  local function days_until(month)
    local year = floor(month / 12)
    return 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400) + floor((153 * (month % 12) + 2) / 5)
  end
  local function next_month_us(at_us)
    local day = floor(at_us / DAY_US) + 719468
    local month = floor(day / 30.5)
    while days_until(month) <= day do month = month + 1 end
    return (days_until(month) - 719468) * DAY_US
  end
  local function window_end(it, at_us) -- of a rule or a state
    local anchor, ahead_us = it.shape % 4, (floor(it.shape / 4) - 840) * 60e6
    if anchor == 2 then return next_month_us(at_us + ahead_us) - ahead_us end
    local elapsed_us = anchor == 3 and 0 or (at_us + ahead_us - anchor * 4 * DAY_US) % it.period -- 1970-01-05: a Monday
    return at_us - elapsed_us + it.period
  end
  function fixed.of_units(rule, last_us, units)
    return {over = window_end(rule, last_us), count = min(units, MOST_COUNT)}
  end
  function fixed:used(_, at_us) return at_us < self.over and self.count or 0 end
  function fixed:admits() return self.over end
  function fixed:ends() return self.count > 0 and self.over or 0 end
  function fixed:consume(rule, at_us)
    local used, most = self:used(rule, at_us), self.kind == 'bucket' and rule.capacity or MOST_COUNT
    if used == 0 then self.over = window_end(self, at_us) end
    self.last, self.count = at_us, max(used, min(used + rule.cost, most))
  end
  function fixed:refund(units, at_us)
    local given = min(units, self:used(self, at_us))
    self.count = self.count - given
    return given
  end
  return fixed
end

-- log: the times of requests, newest first; of each the admitted units unless they are 1, and the denied units, which
-- `count=all` charges, unless they are 0. It keeps what its rules need (as log_needs has it): those of the last check,
-- and those of earlier ones until their windows have passed. Its period is the longest of these windows.
function ALGORITHMS.log()
  local log = {fields = {'kind', 'name', 'shape', 'period', 'last', 'needs', 'times', 'admitted', 'denied'}}
  local function most_of(needs)
    local most = {0, 0, 0}
    for _, each in ipairs(needs) do
      for i = 1, 3 do most[i] = max(most[i], each[i]) end
    end
    return most
  end
  local function end_for(self, rule) -- the log may end while the rule's window still has entries
    return rule.period > self.needs[1][1] and self:ends() or NEVER
  end
  -- Replaces the units of each time, newest first, by what `change` makes of them.
  local function rebuild(self, change)
    local times, all_admitted, all_denied, admitted, denied, n = {}, {}, {}, 0, 0, 0
    for i = self.times[0] and 0 or 1, #self.times do
      local us = self.times[i]
      admitted, denied = admitted + (self.admitted[i] or 1), denied + (self.denied[i] or 0)
      if us ~= self.times[i + 1] then
        admitted, denied = change(us, admitted, denied)
        if admitted + denied > 0 then
          n = n + 1
          times[n] = us
          all_admitted[n] = admitted ~= 1 and admitted or nil
          all_denied[n] = denied ~= 0 and denied or nil
        end
        admitted, denied = 0, 0
      end
    end
    self.times, self.admitted, self.denied, self.last = times, all_admitted, all_denied, times[1] or 0
  end
  function log.of_units() return {times = {}, admitted = {}, denied = {}, needs = {{0, 0, 0}}} end
  function log:flip() -- to and from the ages of the entries, which are saved because they are smaller
    for i, us in ipairs(self.times) do self.times[i] = self.last - us end
  end
  function log:used(rule, at_us)
    local used = 0
    if end_for(self, rule) <= at_us then return 0 end
    for i, us in ipairs(self.times) do
      if us <= at_us - rule.period then break end
      used = used + (self.admitted[i] or 1) + (rule.all and self.denied[i] or 0)
    end
    -- Admitted and denied units together may be more than the rules need.
    return rule.cost == 0 and most_of(self.needs)[2] <= rule.limit and min(used, rule.limit) or used
  end
  function log:admits(rule)
    local used, i = 0, 0
    repeat
      i = i + 1
      used = used + (self.admitted[i] or 1) + (rule.all and self.denied[i] or 0)
    until used + rule.cost > rule.limit
    return min(self.times[i] + rule.period, end_for(self, rule))
  end
  function log:clears(rule)
    local i = 1
    while self.admitted[i] == 0 and not rule.all do i = i + 1 end
    return self.times[i] and min(self.times[i] + rule.period, end_for(self, rule)) or 0
  end
  function log:ends()
    local until_us = self.last + self.needs[1][1]
    for i = 2, #self.needs do until_us = max(until_us, self.needs[i][4]) end
    return self.times[1] and until_us or 0
  end
  function log:consume(rule, at_us, is_denied)
    if self:ends() <= at_us then self.times, self.admitted, self.denied, self.needs = {}, {}, {}, {{0, 0, 0}} end
    self.needs[1][4] = self.last + self.needs[1][1]
    -- The module keeps the window in four bytes, rounded up to a second beyond 24 days.
    local rounded_us = log_needs[1] < 2 ^ 31 * 1000 and log_needs[1] or ceil(log_needs[1] / 1e6) * 1e6
    local needs = {log_needs}
    for _, old in ipairs(self.needs) do
      local is_covered = rounded_us >= old[1] and log_needs[2] >= old[2] and log_needs[3] >= old[3]
      if old[4] > at_us and not is_covered then needs[#needs + 1] = old end
    end
    if #needs > 9 then fail('more than 8 sets of log rules are in use on one key: that needs the module') end
    local window_us, units, units_admitted = unpack(most_of(needs))
    needs[1] = {rounded_us, log_needs[2], log_needs[3]}
    self.needs, self.period = needs, max(window_us, rounded_us)

    local first = self.times[1] == at_us and 1 or 0
    self.times[first] = at_us
    self.admitted[first] = first * (self.admitted[first] or 1) + (is_denied and 0 or rule.cost)
    self.denied[first] = (self.denied[first] or 0) + (is_denied and rule.cost or 0)
    rebuild(self, function(us, admitted, denied) -- keeps the newest units, and the newest admitted ones
      if us <= at_us - window_us then return 0, 0 end
      denied = min(denied, units)
      units = units - denied
      admitted = min(admitted, max(units, units_admitted))
      units, units_admitted = max(0, units - admitted), max(0, units_admitted - admitted)
      return admitted, denied
    end)
  end
  function log:step_back(window_us) -- what a longer window still needs moves to just outside of this one
    local latest_us = now_us - window_us
    if latest_us < 0 or not effective_time(now_us, self.last, self.period) then
      self.times = {}
      return
    end
    for i, us in ipairs(self.times) do self.times[i] = min(us, latest_us) end
    for i = 2, #self.needs do self.needs[i][4] = min(self.needs[i][4], latest_us + self.needs[i][1]) end
    self.last = latest_us
  end
  function log:refund(units, at_us, window_us)
    local left = units
    rebuild(self, function(us, admitted, denied)
      local of_admitted = us > at_us - window_us and min(left, admitted) or 0
      local of_denied = us > at_us - window_us and min(left - of_admitted, denied) or 0
      left = left - of_admitted - of_denied
      return admitted - of_admitted, denied - of_denied
    end)
    return units - left
  end
  return log
end

local classes = {}
local function class_of(kind, shape) -- a bucket of another shape than 0 refills like a fixed window
  local name = kind == 'bucket' and shape > 0 and 'fixed' or kind
  if not classes[name] then
    classes[name] = ALGORITHMS[name]()
    classes[name].__index = classes[name]
  end
  return classes[name]
end
-- What a rule or a state stands for: its name, or else its algorithm, period and shape. All log rules read one state.
local function identity(it) return it.name ~= '' and '=' .. it.name or it.kind .. it.period .. '/' .. it.shape end
local function state_id(it) return it.kind == 'log' and 'log' or identity(it) end
local function restore(text)
  for _, values in ipairs(cmsgpack.unpack(text)) do
    local state = setmetatable({}, class_of(values[1], values[3]))
    for i, field in ipairs(state.fields) do state[field] = values[i] end
    if state.flip then state:flip() end
    states[state_id(state)], loaded = state, loaded + 1
  end
end
local function save()
  local saved = {}
  for _, state in pairs(states) do
    if state.flip then state:flip() end
    local values = {}
    for i, field in ipairs(state.fields) do values[i] = state[field] end
    saved[#saved + 1] = values
  end
  if #saved > max(256, loaded) then fail('the key would hold %d states, expected at most 256', #saved) end
  return cmsgpack.pack(saved)
end
local function drop(is_needless)
  for id, state in pairs(states) do
    if is_needless(state, id) then states[id] = nil end
  end
end
local function is_empty(state) return state:ends() == 0 end
local function new(rule, last_us, units, old)
  local class = class_of(rule.kind, rule.shape)
  local state = class.of_units(rule, last_us, units, old)
  state.kind, state.name, state.shape, state.period, state.last = rule.kind, rule.name, rule.shape, rule.period, last_us
  return setmetatable(state, class)
end
local function fits(state, rule) -- at a limit of 0 nothing drains, so a named rule leaves the state as it is
  local is_same = state.period == rule.period and state.shape == rule.shape
  local is_frozen = rule.limit == 0 and class_of(rule.kind, rule.shape).drains
  return state.kind == rule.kind and (is_same or is_frozen or rule.kind == 'log')
end
local function seen_by(state, rule, at_us) -- reshaped if the shape is another; nil if it ended, or for another algorithm
  if fits(state, rule) then return state end
  if state.kind ~= rule.kind or state:ends() <= at_us then return nil end
  return new(rule, state.last, state:used(state, state.last), state)
end
local function look(rule, at_us) -- at the state that a rule sees, when it is read, and when it ends if it is reshaped
  local state = states[rule.id]
  local read_us = state and effective_time(at_us, state.last, rule.window)
  local seen = read_us and seen_by(state, rule, read_us)
  return seen, seen and read_us or at_us, seen and seen ~= state and state:ends() or NEVER
end
local function decide(rule, at_us) -- whether it denies its cost, its wait or turn, and the remaining units
  if rule.limit == 0 then return rule.cost > 0, rule.cost > 0 and NEVER or 0, 0 end
  local seen, read_us, ends_us = look(rule, at_us)
  local used = seen and seen:used(rule, read_us) or 0
  local remaining, denies, until_us = max(0, rule.capacity - used), used + rule.cost > rule.capacity, 0
  if rule.cost > rule.capacity then return true, NEVER, remaining end
  if denies then
    until_us = seen:admits(rule, read_us)
  elseif seen and seen.turn then
    until_us = seen:turn(rule, read_us)
  end
  return denies, ms_after(min(until_us, ends_us), at_us), remaining
end
local function reset_ms(rule)
  local seen, read_us, ends_us = look(rule, now_us)
  local clears_us = seen and (seen.clears or seen.ends)(seen, rule) or 0
  return clears_us <= read_us and 0 or ms_after(min(clears_us, ends_us), now_us)
end
local function consume_by(rule, is_denied)
  local state = states[rule.id]
  if not state or state.kind ~= rule.kind then -- with a new state, those go that have not mattered for two windows
    drop(function(other, id) return not rules[id] and other:ends() <= now_us - 2 * other.period end)
  end
  state = state and seen_by(state, rule, now_us) or new(rule, now_us, 0)
  local at_us = effective_time(now_us, state.last, rule.window)
  if not at_us and state.step_back then
    state:step_back(rule.window)
  elseif not at_us then
    state = new(rule, now_us, 0)
  end
  states[rule.id] = state
  state:consume(rule, at_us or now_us, is_denied)
end
local function consume(is_denied) -- returns whether a rule does
  local consumed = {}
  for _, rule in ipairs(rules) do
    if rule.cost > 0 and (rule.all or not is_denied) then
      if rule.kind == 'log' then states['=' .. rule.name] = nil end -- another algorithm's state of its name
      if not consumed[rule.id] then consume_by(rule, is_denied) end
      consumed[rule.id] = true
    end
  end
  drop(is_empty)
  return next(consumed) ~= nil
end
local function precedes(one, other) -- as the answer: the longer denial, or else what admits its own cost fewer times
  if one.denies or other.denies then return one.denies and (not other.denies or one.wait > other.wait) end
  if one.cost == other.cost then return one.remaining < other.remaining end
  if one.cost == 0 or other.cost == 0 then return other.cost == 0 end
  return (muldiv(one.remaining, other.cost, one.cost)) < other.remaining
end
-- A rule ignores a state that lies more than a window ahead of a clock that stepped back, and later sees it again, and
-- may deny.
local function until_all_admit(wait)
  for _ = 1, #rules do -- each denies once more at most
    local longest = 0
    for _, rule in ipairs(rules) do
      local denies, longer = decide(rule, now_us + wait * 1000)
      if denies and not rule.shadow then longest = max(longest, longer) end
    end
    wait = wait + longest
    if longest == 0 or longest == NEVER then break end
  end
  return wait
end
local function check(may_change) -- returns the reply, and whether the key changes
  local is_denied, chargeable, best, turn = false, true, nil, 0
  for _, rule in ipairs(rules) do
    rule.denies, rule.wait, rule.remaining = decide(rule, now_us)
    is_denied = is_denied or rule.denies and not rule.shadow
    chargeable = chargeable and (rule.shadow or rule.cost <= rule.capacity)
  end
  local changes = may_change and (chargeable or not is_denied) and consume(is_denied)
  for _, rule in ipairs(rules) do
    if changes and is_denied then
      rule.denies, rule.wait, rule.remaining = decide(rule, now_us)
    elseif changes then
      rule.remaining = max(0, rule.remaining - rule.cost)
    end
    if not rule.shadow then
      best, turn = best and not precedes(rule, best) and best or rule, max(turn, rule.wait)
    end
  end
  if not best then return {0, -1, -1, 0, 0}, changes end
  local wait = not is_denied and turn or best.wait < NEVER and until_all_admit(best.wait) or NEVER
  return {is_denied and 1 or 0, best.capacity, best.remaining, wait < NEVER and wait or -1, reset_ms(best)}, changes
end
local function refund(units) -- returns the most that a state gives back, and whether one does
  local most = 0
  for id, state in pairs(states) do
    local rule = rules[id]
    local window_us = #rules == 0 and state.period or rule and rule.kind == state.kind and rule.window
    local at_us = window_us and effective_time(now_us, state.last, window_us)
    if at_us and state:ends() > at_us then most = max(most, state:refund(units, at_us, window_us)) end
  end
  drop(is_empty)
  return most, most > 0
end

local UNITS = {
  ms = 1e3, s = 1e6, sec = 1e6, secs = 1e6, second = 1e6, seconds = 1e6, m = 6e7, min = 6e7, mins = 6e7, minute = 6e7,
  minutes = 6e7, h = 36e8, hour = 36e8, hours = 36e8, d = DAY_US, day = DAY_US, days = DAY_US, w = 7 * DAY_US,
  week = 7 * DAY_US, weeks = 7 * DAY_US, month = 31 * DAY_US,
}
-- The options: of one algorithm or of all, with words as values, or a text of this pattern, or a number in these bounds.
local function options()
  return {
    align = {of = 'fixed', ['align=epoch'] = 0, ['align=first'] = 3},
    burst = {of = 'bucket', 1, MOST_UNITS},
    cost = {0, MOST_UNITS},
    count = {['count=all'] = true, ['count=allowed'] = 0},
    name = {pattern = '^[%w_.-]+$'},
    queue = {of = 'leaky', 0, MOST_UNITS},
    refill = {of = 'bucket', ['refill=interval'] = 3},
    res = {of = 'window', 1, 60},
    shadow = {shadow = true},
    tz = {of = 'fixed', pattern = '^[+-]%d%d:[0-5]%d$'},
  }
end
local function number(text, least, most) -- a whole number within bounds, or nil
  local n = find(text or '', '^%d+$') and tonumber(text)
  return n and n >= least and n <= most and n or nil
end
local function parse(text)
  local function wrong(what, expected) fail('rule %q: %s, expected %s', text, what, expected) end
  local function refuse(what) fail('rule %q: %s needs the module', text, what) end
  local kind, body = match(text, '^(%a+):(.*)$')
  kind, body = kind or 'log', body or text
  local limit, count, unit, rest = match(body, '^(%d+)/(%d*)([^,]*)(.*)$')
  if kind == 'slots' then refuse(kind) end
  if find(text, '^@') then refuse('a policy') end
  if not ALGORITHMS[kind] then wrong('unknown algorithm', 'log, window, fixed, bucket or leaky') end
  limit = number(limit, 0, MOST_UNITS) or wrong('no limit', 'limit/period such as 20/1m, the limit 0..1000000000')
  if kind == 'log' and limit > 100000 then wrong('too many entries', 'at most 100000; use window or bucket instead') end
  local period, is_month = (UNITS[unit] or 0) * (tonumber(count) or 1), unit == 'month'
  if period < 1e3 or period > 366 * DAY_US or is_month and (kind ~= 'fixed' or period > UNITS.month) then
    wrong('wrong period', "1ms..366d, or 'month' for fixed")
  end
  local given, known = {}, rest ~= '' and options()
  for option in string.gmatch(rest, ',([^,]*)') do
    local name, value = match(option, '^([^=]*)=?(.*)$')
    local takes = known[name] or {}
    if name == 'ban' or name == 'keep' then refuse(name) end
    if given[name] or (takes.of or kind) ~= kind then wrong('option ' .. name, 'options of ' .. kind .. ', each once') end
    local is_number = takes[1] and number(value, takes[1], takes[2])
    given[name] = takes[option] or is_number or takes.pattern and match(value, takes.pattern)
      or wrong('option ' .. option, 'a known option and a valid value')
  end
  if #(given.name or '') > 32 then wrong('a long name', 'at most 32 bytes') end
  if given.align == 3 and is_month then wrong("'month' with align=first", 'align=epoch or a period in days') end
  local shape = given.res or kind == 'window' and 1 or 0
  if kind == 'fixed' or given.refill then
    local sign, hours, minutes = match(given.tz or '+00:00', '(.)(..):(..)')
    local east = (hours * 60 + minutes) * (sign == '-' and -1 or 1)
    if math.abs(east) > 840 then wrong('option tz', '-14:00..+14:00') end
    shape = (east + 840) * 4 + max(given.align or 0, given.refill or 0, is_month and 2 or find(unit, '^w') and 1 or 0)
  end
  local room = kind == 'leaky' and (given.queue or limit) + 1 or given.burst or limit
  local capacity = limit > 0 and room or 0
  if capacity * period > MOST_US * limit and class_of(kind, shape).drains then
    refuse('a bucket that drains in more than 142 years')
  end
  return {text = text, kind = kind, limit = limit, period = period, shape = shape, capacity = capacity,
    name = given.name or '', cost = given.cost, all = given.count == true, shadow = given.shadow}
end
local function read_words() -- returns the command, and the units of a refund
  local command, at, costs, taken, units = string.upper(ARGV[1] or ''), 2, {}, {}, nil
  if #KEYS ~= 1 or not find(KEYS[1], ':script$') then
    fail("the key is %q, expected one that ends with ':script'", KEYS[1] or '')
  end
  if command == 'REFUND' then
    units, at = number(ARGV[2], 0, MOST_UNITS), 3
    if not units then fail('units is %q, expected an integer 0..1000000000', ARGV[2] or '') end
  elseif command ~= 'CHECK' and command ~= 'PEEK' and (command ~= 'RESET' or #ARGV > 1) then
    fail('%q needs the module, expected CHECK, PEEK, REFUND or RESET', table.concat(ARGV, ' '))
  end
  while at <= #ARGV do
    local option, value = string.upper(ARGV[at]), ARGV[at + 1] or ''
    local name, cost = match(value, '^([%w_.-]+)=(.*)$')
    name = name or true -- for every rule
    if option == 'AT' and not now_us then
      now_us = number(value, 0, MOST_US)
        or fail('AT is %q, expected an integer 0..%.0f; later needs the module', value, MOST_US)
    elseif option == 'COST' and find(value, '^%d+%.%.%d+$') then
      fail('COST with a range needs the module')
    elseif option == 'COST' and not units and not costs[name] then
      costs[name] = number(cost or value, 0, MOST_UNITS)
        or fail('COST is %q, expected 0..1000000000 or name=integer', value)
    elseif option == 'AT' or option == 'COST' then
      fail('%s is given twice, or not expected here', option)
    elseif option == 'FULL' or option == 'META' or option == 'HOLD' then
      fail('%s needs the module', option)
    else
      break
    end
    at = at + 2
  end
  for i = at, #ARGV do
    local rule = parse(ARGV[i])
    local same, log = taken[identity(rule)], rules.log
    if same then fail('rule %q: same identity as rule %q, expected another name=', rule.text, same.text) end
    rule.id, rule.cost = state_id(rule), costs[rule.name] or rule.cost or costs[true] or 1
    costs[rule.name] = nil
    if rule.kind == 'log' then
      if log and log.cost ~= rule.cost and not units then
        fail('rule %q: expected the cost of the other log rules: they share a log', rule.text)
      end
      local without_all = rule.all and 0 or 1
      log_needs = {max(log_needs[1], rule.period), max(log_needs[2], rule.limit), max(log_needs[3], without_all)}
    end
    taken[identity(rule)], rules[rule.id], rules[#rules + 1] = rule, rule, rule
  end
  log_needs[3] = log_needs[3] * log_needs[2]
  for _, rule in ipairs(rules) do rule.window = rule.kind == 'log' and log_needs[1] or rule.period end
  costs[true] = nil
  if next(costs) then fail('COST %s= is for no rule here, expected a rule with name=%s', next(costs), next(costs)) end
  if #rules > 32 then fail('%d rules, expected at most 32', #rules) end
  if #rules == 0 and (command == 'CHECK' or command == 'PEEK') then
    fail('wrong number of arguments, expected a rule such as 20/1m')
  end
  return command, units
end

local function main()
  local command, units = read_words()
  local saved, time = redis.pcall('GET', KEYS[1]), redis.pcall('TIME')
  if type(saved) == 'table' or saved and string.sub(saved, 1, 2) ~= 'r\1' then
    return {err = 'WRONGTYPE the key holds no value of this version of the script; the module\'s values need the module'}
  end
  if command == 'RESET' then return redis.call('DEL', KEYS[1]) end
  local clock_us = time.err and now_us or not time.err and time[1] * 1e6 + time[2]
  now_us = now_us or clock_us or fail('the server refuses TIME in scripts, expected AT')
  if saved then restore(string.sub(saved, 3)) end
  local reply, changes
  if units then reply, changes = refund(units) else reply, changes = check(command == 'CHECK') end
  if not changes then return reply end
  if not next(states) then
    redis.call('DEL', KEYS[1])
    return reply
  end
  local until_us, late_us = clock_us, 1e6
  for _, state in pairs(states) do
    local ends_us = state:ends()
    if ends_us > 2 ^ 53 then fail('a bucket that drains in more than 142 years needs the module') end
    until_us, late_us = max(until_us, ends_us + max(0, clock_us - now_us)), max(late_us, floor(state.period / 8))
  end
  local expires_ms = ceil(until_us / 1000) + floor((late_us - floor(late_us / 8)) / 1000)
  redis.call('SET', KEYS[1], 'r\1' .. save(), 'PXAT', string.format('%.0f', expires_ms))
  return reply
end

local ok, reply = pcall(main)
-- Redis 6.2 puts a line number before the code of an error.
return ok and reply or {err = (string.gsub(reply, '^@user_script: %d+: %-', ''))}
