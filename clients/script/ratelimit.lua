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
-- CLOCK  is the server's; if the server refuses TIME in scripts, AT gives the caller's. A state's time never runs back.
-- EXACT  Numbers are exact up to 2^53. A larger one is kept as whole units and a remainder in fractions of the period.
--        Times, and the time in which a full bucket drains, are refused beyond 2^52 microseconds: the year 2112, and
--        142 years.
-- SPEED  Lua builds a script's functions at each call, so those of an algorithm are built when they are needed.
--
-- The module's source, in core/src/algorithm, explains each formula. The names here are the same.
local floor, ceil, min, max, find, match = math.floor, math.ceil, math.min, math.max, string.find, string.match
local NEVER, MOST_US, MOST_UNITS, MOST_COUNT, DAY_US = math.huge, 2 ^ 52, 1e9, 2 ^ 48 - 1, 86400e6
local now_us
local rules = {} -- in the order of the call, and by the identity of the state that each reads
local log_needs = {0, 0, 0} -- the longest window of the log rules, their largest limit, and that without `count=all`
local states, loaded, has_new = {}, 0, false -- by identity; how many the key held; whether one was added

local function expect(value, why, ...) return value or error('ERR ' .. string.format(why, ...), 0) end
-- floor(a * b / d) and the remainder. Exact for a and b up to 2^53 and d up to 2^48, if the quotient is below 2^53.
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

-- Each algorithm builds a class of states. `fields` of a state are saved, and `of_units` are those of a new one. The
-- others are methods. Where they take a rule, the state itself stands for the rule that consumed last.
--   used       the units that count for a rule, rounded up
--   falls_to   when no more than so many count
--   clears     when none counts for a rule; as `ends`, for all rules that consumed; 0: none does
--   consume    adds the rule's cost, as far as the algorithm counts
--   refund     takes off the newest units, and returns how many
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
  function bucket.of_units(rule, _, units, old)
    local rem = old and old.rem and muldiv_up(old.rem, rule.period, old.period, 0) -- in fractions of this period
    local is_debt = rem and rem < rule.period
    return {units = is_debt and old.units or units, rem = is_debt and rem or 0, limit = max(rule.limit, 1)}
  end
  function bucket:used(rule, at_us)
    local units, rem = owed(self, rule.limit, at_us)
    return units + min(rem, 1)
  end
  function bucket:falls_to(left, rule, at_us)
    local units, rem = owed(self, rule.limit, at_us)
    local drained_us = at_us + muldiv_up(self.period, units - left, rule.limit, rem)
    return rule.limit < self.limit and min(drained_us, self:ends()) or drained_us
  end
  function bucket:clears(rule)
    local owes = self.units + self.rem > 0
    return owes and self.last + muldiv_up(self.period, self.units, max(rule.limit, self.limit), self.rem) or 0
  end
  function bucket:ends() return self:clears(self) end
  function bucket:consume(rule, at_us)
    local units, rem = owed(self, rule.limit, at_us)
    local filled = units + rule.cost
    if units < rule.capacity then units, rem = min(filled, rule.capacity), filled < rule.capacity and rem or 0 end
    self.units, self.rem, self.last = units, rem, at_us
    if rule.limit > 0 then self.limit = rule.limit end
  end
  function bucket:refund(units, at_us)
    local used = self:used(self, at_us)
    self.units, self.rem = used > units and self.units - units or 0, used > units and self.rem or 0
    return min(units, used)
  end
  return bucket
end
ALGORITHMS.leaky = ALGORITHMS.bucket

-- window: counts of sub-intervals, newest first. A sub-interval has `period` ticks, which are 1 / res microseconds; it
-- has a number, and the number of the newest count is kept. The shape is res. Of the count that is res sub-intervals
-- old, the part counts that the window still covers.
function ALGORITHMS.window()
  local window = {fields = {'kind', 'name', 'shape', 'period', 'last', 'newest', 'counts'}}
  local function counted(self, index) -- in a sub-interval: the units that count in full, and those that count in part
    local full, oldest = 0, self.newest + self.shape + 1 - index
    for i = 1, min(oldest - 1, #self.counts) do full = full + self.counts[i] end
    return full, self.counts[oldest] or 0
  end
  function window.of_units(rule, last_us, units)
    return {newest = (muldiv(last_us, rule.shape, rule.period)), counts = {min(units, MOST_COUNT)}}
  end
  function window:used(_, at_us)
    local index, elapsed = muldiv(at_us, self.shape, self.period)
    local full, old = counted(self, index)
    return full + muldiv_up(old, self.period - elapsed, self.period, 0)
  end
  function window:falls_to(left, _, at_us)
    local index = muldiv(at_us, self.shape, self.period)
    local full, old = counted(self, index)
    while full > left do
      index = index + 1
      full, old = counted(self, index)
    end
    local elapsed = full + old > left and self.period - muldiv(left - full, self.period, old) or 0
    return max(at_us, muldiv_up(index, self.period, self.shape, elapsed))
  end
  function window:ends()
    local i = 1
    while self.counts[i] == 0 do i = i + 1 end
    return self.counts[i] and muldiv_up(self.newest + self.shape + 2 - i, self.period, self.shape, 0) or 0
  end
  function window:consume(rule, at_us)
    local index, counts = muldiv(at_us, self.shape, self.period), self.counts
    local shift = index - self.newest
    for i = min(#counts + shift, self.shape + 1), 1, -1 do counts[i] = counts[i - shift] or 0 end
    counts[1] = min(counts[1] + rule.cost, MOST_COUNT)
    self.last, self.newest = at_us, index
  end
  function window:refund(units, at_us)
    local index, left = muldiv(at_us, self.shape, self.period), units
    for i = 1, min(#self.counts, self.newest + self.shape + 1 - index) do
      local given = min(left, self.counts[i])
      self.counts[i], left = self.counts[i] - given, left - given
    end
    return units - left
  end
  return window
end

-- fixed, and bucket with refill=interval: the count of a window that is over at a time. The shape is the time zone, and
-- in two bits whether windows begin at the epoch (0), on Mondays (1), with months (2) or at the first request (3).
function ALGORITHMS.fixed()
  local fixed = {fields = {'kind', 'name', 'shape', 'period', 'last', 'over', 'count'}}
  local function days_until(month) -- since 1970; months count from March of the year 0 (Hinnant, "chrono-Compatible …")
    local year = floor(month / 12)
    local leap_days = floor(year / 4) - floor(year / 100) + floor(year / 400)
    return 365 * year + leap_days + floor((153 * (month % 12) + 2) / 5) - 719468
  end
  local function window_end(it, at_us) -- of a rule or a state
    local anchor, ahead_us = it.shape % 4, (floor(it.shape / 4) - 840) * 60e6
    local local_us = at_us + ahead_us
    if anchor == 3 then return at_us + it.period end
    if anchor < 2 then return at_us + it.period - (local_us - anchor * 4 * DAY_US) % it.period end -- 1970-01-05: Monday
    local month = floor((local_us / DAY_US + 719468) / 30.5)
    while days_until(month) * DAY_US <= local_us do month = month + 1 end
    return days_until(month) * DAY_US - ahead_us
  end
  function fixed.of_units(rule, last_us, units)
    return {over = window_end(rule, last_us), count = min(units, MOST_COUNT)}
  end
  function fixed:used(_, at_us) return at_us < self.over and self.count or 0 end
  function fixed:falls_to() return self.over end
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

-- log: the ages of requests at the newest one's time, newest first; of each the admitted units unless they are 1, and
-- the denied ones, which `count=all` charges, unless they are 0. It keeps what its rules need: those of the last check,
-- and those of earlier ones until their windows have passed. `needs` has for each check log_needs and that time. Period
-- and units are the largest of all.
function ALGORITHMS.log()
  local log = {fields = {'kind', 'name', 'shape', 'period', 'last', 'needs', 'units', 'ages', 'admitted', 'denied'}}
  local function end_for(self, rule) -- the log may end while the rule's window still has entries
    return rule.period > self.needs[1][1] and self:ends() or NEVER
  end
  local function rebuild(self, change) -- from what `change` makes of the units of each time, newest first
    local ages, all_admitted, all_denied, admitted, denied, last_us = {}, {}, {}, 0, 0, nil
    for i = self.ages[0] and 0 or 1, #self.ages do
      admitted, denied = admitted + (self.admitted[i] or 1), denied + (self.denied[i] or 0)
      if self.ages[i] ~= self.ages[i + 1] then
        local us, n = self.last - self.ages[i], #ages + 1
        admitted, denied = change(us, admitted, denied)
        if admitted + denied > 0 then
          last_us = last_us or us
          ages[n], all_admitted[n], all_denied[n] = last_us - us, admitted ~= 1 and admitted or nil, denied > 0 and denied or nil
        end
        admitted, denied = 0, 0
      end
    end
    self.ages, self.admitted, self.denied, self.last = ages, all_admitted, all_denied, last_us or 0
    self.needs[1][4] = self.last + self.needs[1][1]
  end
  function log.of_units() return {ages = {}, admitted = {}, denied = {}, needs = {}} end
  local function units_of(self, i, rule) return (self.admitted[i] or 1) + (rule.all and self.denied[i] or 0) end
  function log:used(rule, at_us)
    local used, aged = 0, rule.period - (at_us - self.last)
    if end_for(self, rule) <= at_us then return 0 end
    for i, age in ipairs(self.ages) do
      if age >= aged then break end
      used = used + units_of(self, i, rule)
    end
    -- Admitted and denied units together may be more than the rules need, but do not deny a cost of 0.
    return rule.cost == 0 and self.units <= rule.limit and min(used, rule.limit) or used
  end
  function log:falls_to(left, rule)
    local used, i = 0, 0
    repeat
      i = i + 1
      used = used + units_of(self, i, rule)
    until used > left
    return min(self.last - self.ages[i] + rule.period, end_for(self, rule))
  end
  function log:clears(rule)
    local i = 1
    while self.ages[i] and units_of(self, i, rule) == 0 do i = i + 1 end
    return self.ages[i] and min(self.last - self.ages[i] + rule.period, end_for(self, rule)) or 0
  end
  function log:ends()
    local ends_us = 0
    for _, needs in ipairs(self.ages[1] and self.needs or {}) do ends_us = max(ends_us, needs[4]) end
    return ends_us
  end
  function log:consume(rule, at_us, is_denied)
    if self:ends() <= at_us then self.ages, self.admitted, self.denied, self.needs = {}, {}, {}, {} end
    local window_us, units, units_admitted = unpack(log_needs)
    -- The module keeps the window in four bytes, rounded up to a second beyond 24 days.
    local rounded_us = window_us < 2 ^ 31 * 1000 and window_us or ceil(window_us / 1e6) * 1e6
    local needs = {{rounded_us, units, units_admitted}}
    for _, old in ipairs(self.needs) do
      local is_covered = rounded_us >= old[1] and log_needs[2] >= old[2] and log_needs[3] >= old[3]
      if old[4] > at_us and not is_covered then
        needs[#needs + 1] = old
        window_us, units, units_admitted = max(window_us, old[1]), max(units, old[2]), max(units_admitted, old[3])
      end
    end
    expect(#needs <= 9, 'more than 8 sets of log rules are in use on one key: that needs the module')
    self.needs, self.period, self.units = needs, max(window_us, rounded_us), units

    local first = self.ages[1] and self.last == at_us and 1 or 0
    self.ages[first] = self.last - at_us
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
  -- When the clock stepped back by more than a rule's window: what a longer one needs moves to just outside of it.
  function log:step_back(window_us)
    local latest_us = now_us - window_us
    if latest_us < 0 or not effective_time(now_us, self.last, self.period) then return nil end
    for i, age in ipairs(self.ages) do self.ages[i] = max(0, age - (self.last - latest_us)) end
    for _, needs in ipairs(self.needs) do needs[4] = min(needs[4], latest_us + needs[1]) end
    self.last = latest_us
    return self
  end
  function log:refund(units, at_us, window_us)
    local left = units
    rebuild(self, function(us, admitted, denied)
      local most = us > at_us - window_us and left or 0
      local of_admitted = min(most, admitted)
      local of_denied = min(most - of_admitted, denied)
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
    local class = ALGORITHMS[name]()
    class.__index, class.clears, classes[name] = class, class.clears or class.ends, class
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
    states[state_id(state)], loaded = state, loaded + 1
  end
end
local function save()
  local saved = {}
  for _, state in pairs(states) do
    local values = {}
    for i, field in ipairs(state.fields) do values[i] = state[field] end
    saved[#saved + 1] = values
  end
  expect(#saved <= max(256, loaded), 'the key would hold %d states, expected at most 256', #saved)
  return cmsgpack.pack(saved)
end
local function new(rule, last_us, units, old)
  local state = setmetatable(rule.class.of_units(rule, last_us, units, old), rule.class)
  state.kind, state.name, state.shape, state.period, state.last = rule.kind, rule.name, rule.shape, rule.period, last_us
  return state
end
-- The state as a rule sees it: reshaped if its shape is another; nil if it then has ended, or is another algorithm's. At
-- a limit of 0 nothing drains, so that rule leaves it as it is.
local function seen_by(state, rule, at_us)
  local is_same = state.period == rule.period and state.shape == rule.shape or rule.kind == 'log'
  if state.kind ~= rule.kind then return nil end
  if is_same or rule.limit == 0 and rule.class.drains then return state end
  return state:ends() > at_us and new(rule, state.last, state:used(state, state.last), state) or nil
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
  local left, remaining = rule.capacity - rule.cost, max(0, rule.capacity - used)
  if left < 0 then return true, NEVER, remaining end
  local waits_for = used > left and left or rule.kind == 'leaky' and 0
  local until_us = seen and waits_for and seen:falls_to(waits_for, rule, read_us) or 0
  return used > left, ms_after(min(until_us, ends_us), at_us), remaining
end
local function decide_all(at_us) -- returns the longest wait of the rules that deny, or 0
  local longest = 0
  for _, rule in ipairs(rules) do
    rule.denies, rule.wait, rule.remaining = decide(rule, at_us)
    if rule.denies and not rule.shadow then longest = max(longest, rule.wait) end
  end
  return longest
end
local function consume(is_denied) -- returns whether a rule does
  local consumed = {}
  for _, rule in ipairs(rules) do
    local consumes = rule.cost > 0 and (rule.all or not is_denied)
    if consumes and rule.kind == 'log' then states['=' .. rule.name] = nil end -- another algorithm's state of its name
    if consumes and not consumed[rule.id] then
      local state = states[rule.id]
      has_new = has_new or not state or state.kind ~= rule.kind
      state = state and seen_by(state, rule, now_us) or new(rule, now_us, 0)
      local at_us = effective_time(now_us, state.last, rule.window)
      if not at_us then state = state.step_back and state:step_back(rule.window) or new(rule, now_us, 0) end
      state:consume(rule, at_us or now_us, is_denied)
      states[rule.id], consumed[rule.id] = state, true
    end
  end
  return next(consumed) ~= nil
end
local function precedes(one, other) -- as the answer: the longer denial, or else what admits its own cost fewer times
  if one.denies or other.denies then return one.denies and (not other.denies or one.wait > other.wait) end
  if one.cost == other.cost then return one.remaining < other.remaining end
  if one.cost == 0 or other.cost == 0 then return other.cost == 0 end
  return (muldiv(one.remaining, other.cost, one.cost)) < other.remaining
end
local function check(may_change) -- returns the reply, and whether the key changes
  local longest, best, turn = decide_all(now_us), nil, 0
  local is_denied = longest > 0
  local changes = may_change and longest < NEVER and consume(is_denied)
  if changes and is_denied then decide_all(now_us) end
  for _, rule in ipairs(rules) do
    if changes and not is_denied then rule.remaining = max(0, rule.remaining - rule.cost) end
    if not rule.shadow then
      best, turn = best and not precedes(rule, best) and best or rule, max(turn, rule.wait)
    end
  end
  if not best then return {0, -1, -1, 0, 0}, changes end
  local seen, read_us, ends_us = look(best, now_us)
  local clears_us = seen and min(seen:clears(best), ends_us) or 0
  local reset_ms = clears_us > read_us and ms_after(clears_us, now_us) or 0
  local wait, remaining = is_denied and best.wait or turn, best.remaining
  -- A rule ignores a state that lies more than a window ahead of a clock that stepped back, and later sees it again, and
  -- may deny, once.
  for _ = 1, is_denied and wait < NEVER and #rules or 0 do wait = wait + decide_all(now_us + wait * 1000) end
  return {is_denied and 1 or 0, best.capacity, remaining, wait < NEVER and wait or -1, reset_ms}, changes
end
local function refund(units) -- returns the most that a state gives back, and whether one does
  local most = 0
  for id, state in pairs(states) do
    local rule = rules[id]
    local window_us = #rules == 0 and state.period or rule and rule.kind == state.kind and rule.window
    local at_us = window_us and effective_time(now_us, state.last, window_us)
    if at_us and state:ends() > at_us then most = max(most, state:refund(units, at_us, window_us)) end
  end
  return most, most > 0
end

local UNITS = {
  ms = 1e3, s = 1e6, sec = 1e6, secs = 1e6, second = 1e6, seconds = 1e6, m = 6e7, min = 6e7, mins = 6e7, minute = 6e7,
  minutes = 6e7, h = 36e8, hour = 36e8, hours = 36e8, d = DAY_US, day = DAY_US, days = DAY_US, w = 7 * DAY_US,
  week = 7 * DAY_US, weeks = 7 * DAY_US, month = 31 * DAY_US,
}
local function options() -- of all algorithms or of one: numbers with their bounds, texts with their pattern, and words
  return {
    cost = {0, MOST_UNITS}, res = {of = 'window', 1, 60},
    burst = {of = 'bucket', 1, MOST_UNITS}, queue = {of = 'leaky', 0, MOST_UNITS},
    name = {pattern = '^[%w_.-]+$'}, tz = {of = 'fixed', pattern = '^[+-]%d%d:[0-5]%d$'},
    align = {of = 'fixed', ['align=epoch'] = 0, ['align=first'] = 3}, refill = {of = 'bucket', ['refill=interval'] = 3},
    count = {['count=all'] = 'all', ['count=allowed'] = 'allowed'}, shadow = {shadow = true},
    ban = {of = 'the module'}, keep = {of = 'the module'},
  }
end
local function number(text, least, most) -- a whole number within bounds, or nil
  local n = find(text or '', '^%d+$') and tonumber(text)
  return n and n >= least and n <= most and n or nil
end
local function parse(text)
  local kind, body = match(text, '^(%a+):(.*)$')
  local limit, count, unit, rest = match(body or text, '^(%d+)/(%d*)([^,]*)(.*)$')
  kind = kind or 'log'
  expect(kind ~= 'slots' and not find(text, '^@'), 'rule %q needs the module', text)
  expect(ALGORITHMS[kind], 'rule %q: expected log, window, fixed, bucket or leaky', text)
  limit = expect(number(limit, 0, MOST_UNITS), 'rule %q: expected a limit 0..1000000000 as in 20/1m', text)
  expect(kind ~= 'log' or limit <= 100000, 'rule %q: expected at most 100000; use window or bucket instead', text)
  local period, is_month = (UNITS[unit] or 0) * (tonumber(count) or 1), unit == 'month'
  local is_valid = period >= 1e3 and period <= 366 * DAY_US and (not is_month or kind == 'fixed' and period == UNITS.month)
  expect(is_valid, "rule %q: expected a period 1ms..366d, or 'month' for fixed", text)
  local given, known = {}, rest ~= '' and options()
  for option in string.gmatch(rest, ',([^,]*)') do
    local name, value = match(option, '^([^=]*)=?(.*)$')
    local takes = expect(known[name], 'rule %q: expected an option of %s, not %q', text, kind, option)
    expect((takes.of or kind) == kind, 'rule %q: %s needs %s, expected an option of %s', text, name, takes.of, kind)
    expect(not given[name], 'rule %q: expected %s once', text, name)
    value = takes[option] or takes[1] and number(value, takes[1], takes[2]) or takes.pattern and match(value, takes.pattern)
    given[name] = expect(value, 'rule %q: expected another value in %s', text, option)
  end
  expect(#(given.name or '') <= 32, 'rule %q: expected a name of at most 32 bytes', text)
  expect(not is_month or given.align ~= 3, 'rule %q: expected align=epoch, or a period in days', text)
  local shape = given.res or kind == 'window' and 1 or 0
  if kind == 'fixed' or given.refill then
    local sign, hours, minutes = match(given.tz or '+00:00', '(.)(..):(..)')
    local east = expect(number(hours * 60 + minutes, 0, 840), 'rule %q: expected tz=-14:00..+14:00', text) * (sign .. 1)
    shape = (east + 840) * 4 + max(given.align or given.refill or 0, is_month and 2 or find(unit, '^w') and 1 or 0)
  end
  local capacity = kind == 'leaky' and (given.queue or limit) + 1 or given.burst or limit
  local class = class_of(kind, shape)
  local is_fast = not class.drains or limit == 0 or capacity * period <= MOST_US * limit
  expect(is_fast, 'rule %q: a bucket that drains in more than 142 years needs the module', text)
  return {
    text = text, kind = kind, class = class, limit = limit, period = period, shape = shape, name = given.name or '',
    capacity = limit > 0 and capacity or 0, cost = given.cost, all = given.count == 'all', shadow = given.shadow,
  }
end
local function read_words() -- returns the command, and the units of a refund
  local command, at, costs, taken, units = string.upper(ARGV[1] or ''), 2, {}, {}, nil
  expect(#KEYS == 1 and find(KEYS[1], ':script$'), "the key is %q, expected one that ends with ':script'", KEYS[1] or '')
  if command == 'REFUND' then
    units, at = expect(number(ARGV[2], 0, MOST_UNITS), 'expected units 0..1000000000, not %q', ARGV[2] or ''), 3
  elseif command ~= 'CHECK' and command ~= 'PEEK' then
    expect(command == 'RESET' and #ARGV == 1, '%q needs the module, expected CHECK, PEEK, REFUND or RESET', ARGV[1] or '')
  end
  for i = at, #ARGV, 2 do
    local option, value, given = string.upper(ARGV[i]), ARGV[i + 1] or '', nil
    if option == 'AT' then
      given = not now_us and number(value, 0, MOST_US)
      now_us = expect(given, 'AT %s: expected once, 0..%.0f; later needs the module', value, MOST_US)
    elseif option == 'COST' and not units then
      local name, cost = match(value, '^([%w_.-]+)=(.*)$')
      given = not costs[name or true] and number(cost or value, 0, MOST_UNITS)
      costs[name or true] = expect(given, 'COST %s: expected n or name=n once, 0..1000000000; n..m needs the module', value)
    else
      expect(option ~= 'FULL' and option ~= 'META' and option ~= 'HOLD', '%s needs the module', option)
      break
    end
    at = i + 2
  end
  for i = at, #ARGV do
    local rule = parse(ARGV[i])
    local name, id = identity(rule), state_id(rule)
    expect(not taken[name], 'rule %q: expected another name= than rule %q', rule.text, taken[name])
    rule.cost = costs[rule.name] or rule.cost or costs[true] or 1
    if rule.kind == 'log' then
      local is_same = units or rule.cost == (rules.log or rule).cost
      expect(is_same, 'rule %q: expected the cost of the other log rules, which share a log', rule.text)
      local counted = rule.all and 0 or 1
      log_needs = {max(log_needs[1], rule.period), max(log_needs[2], rule.limit), max(log_needs[3], counted)}
    end
    costs[rule.name], taken[name], rules[id], rules[#rules + 1], rule.id = nil, rule.text, rule, rule, id
  end
  log_needs[3] = log_needs[3] * log_needs[2]
  for _, rule in ipairs(rules) do rule.window = rule.kind == 'log' and log_needs[1] or rule.period end
  costs[true] = nil
  expect(not next(costs), 'COST %s=: expected a rule with name=%s', next(costs), next(costs))
  expect(#rules <= 32, '%d rules, expected at most 32', #rules)
  expect(#rules > 0 or units or command == 'RESET', 'wrong number of arguments, expected a rule such as 20/1m')
  return command, units
end

local function main()
  local command, units = read_words()
  local saved, time = redis.pcall('GET', KEYS[1]), redis.pcall('TIME')
  if type(saved) == 'table' or saved and string.sub(saved, 1, 2) ~= 'r\1' then
    error('WRONGTYPE the key holds no value of this version of the script; a value of the module needs the module', 0)
  end
  if command == 'RESET' then return redis.call('DEL', KEYS[1]) end
  local clock_us = time.err and now_us or not time.err and time[1] * 1e6 + time[2]
  now_us = expect(now_us or clock_us, 'the server refuses TIME in scripts, expected AT')
  if saved then restore(string.sub(saved, 3)) end
  local reply, changes
  if units then reply, changes = refund(units) else reply, changes = check(command == 'CHECK') end
  if not changes then return reply end
  local until_us, late_us = clock_us, 1e6
  for id, state in pairs(states) do -- with a new state, those go that have not mattered for two windows
    local ends_us = state:ends()
    if ends_us == 0 or has_new and not rules[id] and ends_us <= now_us - 2 * state.period then
      states[id] = nil
    else
      expect(ends_us <= 2 ^ 53, 'a bucket that drains in more than 142 years needs the module')
      until_us, late_us = max(until_us, ends_us + max(0, clock_us - now_us)), max(late_us, floor(state.period / 8))
    end
  end
  if not next(states) then
    redis.call('DEL', KEYS[1])
  else
    local expires_ms = ceil(until_us / 1000) + floor((late_us - floor(late_us / 8)) / 1000)
    redis.call('SET', KEYS[1], 'r\1' .. save(), 'PXAT', string.format('%.0f', expires_ms))
  end
  return reply
end

local ok, reply = pcall(main)
-- Redis 6.2 puts a line number before the code of an error.
return ok and reply or {err = (string.gsub(reply, '^@user_script: %d+: %-', ''))}
