-- The limiter of the module `ratelimit` for servers that load no module, with the same answers, integer by integer:
--   EVAL script 1 user:42:script CHECK|PEEK [COST n] [COST name=n] [AT us] rule [rule ...]
--                                REFUND units [AT us] [rule ...]
--                                RESET
-- Arguments and replies are those of RL.CHECK, RL.PEEK and so on. Rules are log, window, fixed, bucket and leaky with
-- every option but `ban` and `keep`. Anything else is an error that says that it needs the module.
--
-- KEY    ends with `:script`, so that it is no key of the module or the application. No other key is touched.
-- STATE  is one string: a version, then a state for each identity. It expires once nothing in it counts, or later by up
--        to an eighth of the longest window (at least a second). A denial writes only under `count=all`.
-- CLOCK  is the server's. AT gives the time if the server refuses TIME in scripts. A state's time never runs back.
-- EXACT  to 2^53. Times beyond 2^52 us (in 2112) and buckets that drain in over 2^52 us (142 years) are refused.
-- The module's source in engine/src/algorithm explains each formula, under the same names.
local floor, ceil, min, max, find, match = math.floor, math.ceil, math.min, math.max, string.find, string.match
local NEVER, MOST_US, MOST_UNITS, MOST_COUNT, DAY_US = math.huge, 2 ^ 52, 1e9, 2 ^ 48 - 1, 86400e6
local now_us, clock_us -- the time of the call, and the clock's, which sets the key's expiry
local rules = {} -- in the order of the call, and by the identity of the state that each rule reads
local log_needs = {0, 0, 0} -- of log rules: longest window, largest limit, that limit or 0 if all have `count=all`
local states, loaded, has_new = {}, 0, false -- states by identity; how many the key had; whether the call adds one
local function expect(value, why, ...) return value or error('ERR ' .. string.format(why, ...), 0) end
-- floor(a * b / d) and the remainder: exact for a up to 2^53, b and d up to 2^48, and a quotient below 2^53.
local function muldiv(a, b, d)
  if a * b < 2 ^ 53 then return floor(a * b / d), a * b % d end
  local quotient, rest = muldiv(floor(a / 16), b, d) -- two limbs: the last hexadecimal digit of a, and the rest
  rest = rest * 16 + a % 16 * b
  return quotient * 16 + floor(rest / d), rest % d
end
local function muldiv_up(a, b, d, rest) -- ceil((a * b + rest) / d)
  local quotient, remainder = muldiv(a, b, d)
  return quotient + ceil((remainder + rest) / d)
end
local function ms_after(us, since_us) return max(0, ceil((us - since_us) / 1000)) end
-- The time at which a state is read, at least the state's own. False if the clock stepped back by more than the window.
local function effective_time(at_us, last_us, window_us) return last_us - at_us <= window_us and max(at_us, last_us) end

-- Each algorithm is a class of states: `fields` are saved, `of_units` makes a new state's fields, the rest are methods.
-- Where a method takes a rule, a state may stand for the rule that consumed last.
--   used       the units that count for a rule at a time, rounded up
--   falls_to   the time from which at most `left` units count
--   ends       the time from which nothing counts for the rules that consumed; not after `last` if the state is empty
--   consume    adds the rule's cost as far as the algorithm counts
--   refund     removes the newest units, and returns how many it removed
local ALGORITHMS, BASE, classes = {}, {}, {}
function BASE:ends() return self:falls_to(0, self, self.last) end
function BASE:refund(units, at_us) -- for states that do not know when their units were consumed
  local used = self:used(self, at_us)
  self.units, self.rem = used > units and self.units - units or 0, used > units and self.rem or 0
  return min(units, used)
end
-- bucket, leaky: a debt of units + rem / period, which drains at limit / period.
function ALGORITHMS.bucket(bucket)
  bucket.fields, bucket.drains = {'kind', 'name', 'shape', 'period', 'last', 'units', 'rem', 'limit'}, true
  local function owed(self, limit, at_us) -- units, rem, the sum rounded up; a lower limit does not delay the end
    local drained, drained_rem = muldiv(at_us - self.last, limit, self.period)
    local units, rem = self.units - drained, self.rem - drained_rem
    if rem < 0 then units, rem = units - 1, rem + self.period end
    if units < 0 or limit < self.limit and self:ends() <= at_us then units, rem = 0, 0 end
    return units, rem, units + min(rem, 1)
  end
  function bucket.of_units(rule, _, units, old)
    local rem = old and old.rem and muldiv_up(old.rem, rule.period, old.period, 0) % rule.period or 0
    return {units = units - min(rem, 1), rem = rem, limit = max(rule.limit, 1)} -- `units` has the old rem, rounded up
  end
  function bucket:used(rule, at_us) return select(3, owed(self, rule.limit, at_us)) end
  function bucket:falls_to(left, rule, at_us)
    local units, rem = owed(self, rule.limit, at_us)
    local drained_us = at_us + muldiv_up(self.period, units - left, max(rule.limit, 1), rem)
    return rule.limit < self.limit and min(drained_us, self:ends()) or drained_us
  end
  function bucket:consume(rule, at_us)
    local units, rem = owed(self, rule.limit, at_us)
    local filled = units + rule.cost
    if units < rule.capacity then units, rem = min(filled, rule.capacity), filled < rule.capacity and rem or 0 end
    self.units, self.rem, self.last, self.limit = units, rem, at_us, rule.limit > 0 and rule.limit or self.limit
  end
end
ALGORITHMS.leaky = ALGORITHMS.bucket
-- window: counts of sub-intervals, newest first, and the number of the newest one. The shape is res. A sub-interval has
-- `period` ticks of 1 / res microseconds each. A count that is res sub-intervals old counts in part.
function ALGORITHMS.window(window)
  window.fields = {'kind', 'name', 'shape', 'period', 'last', 'newest', 'counts'}
  function window.of_units(rule, last_us, units)
    return {newest = (muldiv(last_us, rule.shape, rule.period)), counts = {min(units, MOST_COUNT)}}
  end
  function window:used(_, at_us)
    local index, elapsed = muldiv(at_us, self.shape, self.period)
    local used, oldest = 0, self.newest + self.shape + 1 - index
    for i = 1, min(oldest - 1, #self.counts) do used = used + self.counts[i] end
    return used + muldiv_up(self.counts[oldest] or 0, self.period - elapsed, self.period, 0)
  end
  function window:falls_to(left, _, at_us)
    for i, count in ipairs(self.counts) do
      if count > left then -- after enough ticks of the sub-interval in which it counts in part
        local elapsed = self.period - muldiv(left, self.period, count)
        return max(at_us, muldiv_up(self.newest + self.shape + 1 - i, self.period, self.shape, elapsed))
      end
      left = left - count
    end
    return 0
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
end
-- fixed, and bucket with refill=interval: the count of a window, and the time when the window is over. The shape is the
-- time zone and two bits: windows begin at the epoch (0), on Mondays (1), with months (2) or at the first request (3).
function ALGORITHMS.fixed(fixed)
  fixed.fields = {'kind', 'name', 'shape', 'period', 'last', 'over', 'units'}
  local function days_until(month) -- since 1970, for months since March of the year 0; Hinnant's "days_from_civil"
    local year, days = floor(month / 12), floor((153 * (month % 12) + 2) / 5)
    return 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400) + days - 719468
  end
  local function window_end(it, at_us) -- of a rule or a state
    local anchor, ahead_us = it.shape % 4, (floor(it.shape / 4) - 840) * 60e6
    local local_us = at_us + ahead_us
    if anchor == 3 then return at_us + it.period end
    if anchor < 2 then return at_us + it.period - (local_us - anchor * 4 * DAY_US) % it.period end -- 1970-01-05: Monday
    local month = floor((local_us / DAY_US + 719468) / 30.44) -- a month has 30.436875 days, so up to 3 months early
    while days_until(month) * DAY_US <= local_us do month = month + 1 end
    return days_until(month) * DAY_US - ahead_us
  end
  function fixed.of_units(rule, last_us, units) return {over = window_end(rule, last_us), units = units} end
  function fixed:used(_, at_us) return at_us < self.over and self.units or 0 end
  function fixed:falls_to(left) return self.units > left and self.over or 0 end
  function fixed:consume(rule, at_us)
    local used, most = self:used(rule, at_us), self.kind == 'bucket' and rule.capacity or MOST_COUNT
    if used == 0 then self.over = window_end(self, at_us) end
    self.last, self.units = at_us, max(used, min(used + rule.cost, most))
  end
end
-- log: for each request, newest first, its age when the newest came, its admitted units unless 1, and its denied units
-- (`count=all`) unless 0. It keeps what the rules of the last check need, and what those of earlier checks need until
-- their windows have passed: `needs` has log_needs and that time for each. `period` and `units` are the largest ones.
function ALGORITHMS.log(log)
  log.fields = {'kind', 'name', 'shape', 'period', 'last', 'needs', 'units', 'ages', 'admitted', 'denied'}
  -- The log may end while a rule's window still has entries.
  local function end_for(self, rule) return rule.period > self.needs[1][1] and self:ends() or NEVER end
  local function units_of(self, i, rule) return (self.admitted[i] or 1) + (rule.all and self.denied[i] or 0) end
  -- Adds units, and then replaces the units of each time, newest first, by those that `change` returns.
  local function rebuild(self, us, admitted, denied, change)
    local ages, all_admitted, all_denied, n, last_us = {}, {}, {}, 0, nil
    for i = 1, #self.ages + 1 do
      local next_us = self.ages[i] and self.last - self.ages[i]
      if us ~= next_us then -- all units of the time `us` are added up
        admitted, denied = change(us, admitted, denied)
        if admitted + denied > 0 then
          n, last_us = n + 1, last_us or us
          ages[n], all_admitted[n] = last_us - us, admitted ~= 1 and admitted or nil
          all_denied[n] = denied > 0 and denied or nil
        end
        us, admitted, denied = next_us, 0, 0
      end
      admitted, denied = admitted + (self.admitted[i] or 1), denied + (self.denied[i] or 0)
    end
    self.ages, self.admitted, self.denied, self.last = ages, all_admitted, all_denied, last_us or 0
    self.needs[1][4] = self.last + self.needs[1][1]
  end
  function log.of_units() return {ages = {}, admitted = {}, denied = {}, needs = {}} end
  function log:used(rule, at_us)
    local used, gone = 0, end_for(self, rule) > at_us and rule.period - (at_us - self.last) or 0
    for i, age in ipairs(self.ages) do
      if age >= gone then break end
      used = used + units_of(self, i, rule)
    end
    -- Admitted and denied units together may be more than the limit. They do not deny a cost of 0.
    return rule.cost == 0 and self.units <= rule.limit and min(used, rule.limit) or used
  end
  function log:falls_to(left, rule)
    for i, age in ipairs(self.ages) do
      left = left - units_of(self, i, rule)
      if left < 0 then return min(self.last - age + rule.period, end_for(self, rule)) end
    end
    return 0
  end
  function log:ends()
    local ends_us = 0
    for _, needs in ipairs(self.needs) do ends_us = max(ends_us, needs[4]) end
    return self.ages[1] and ends_us or 0
  end
  function log:consume(rule, at_us, is_denied)
    if self:ends() <= at_us then self.ages, self.needs = {}, {} end
    local window_us, units, units_admitted = unpack(log_needs)
    -- The module keeps the window in four bytes, so it rounds windows of over 24 days up to seconds.
    local rounded_us = window_us < 2 ^ 31 * 1000 and window_us or ceil(window_us / 1e6) * 1e6
    local needs = {{rounded_us, units, units_admitted}}
    for _, old in ipairs(self.needs) do
      if old[4] > at_us and (old[1] > rounded_us or old[2] > log_needs[2] or old[3] > log_needs[3]) then
        needs[#needs + 1] = old
        window_us, units, units_admitted = max(window_us, old[1]), max(units, old[2]), max(units_admitted, old[3])
      end
    end
    expect(#needs <= 9, 'more than 8 sets of log rules are in use on one key: that needs the module')
    self.needs, self.period, self.units = needs, max(window_us, rounded_us), units
    rebuild(self, at_us, is_denied and 0 or rule.cost, is_denied and rule.cost or 0, function(us, admitted, denied)
      if us <= at_us - window_us then return 0, 0 end
      denied = min(denied, units) -- keeps the newest units, and the newest admitted ones
      units = units - denied
      admitted = min(admitted, max(units, units_admitted))
      units, units_admitted = max(0, units - admitted), max(0, units_admitted - admitted)
      return admitted, denied
    end)
  end
  -- When the clock stepped back by more than a rule's window: moves what longer windows need to just outside of it.
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
    rebuild(self, self.last, 0, 0, function(us, admitted, denied)
      local most = us > at_us - window_us and left or 0
      local of_admitted, of_denied = min(most, admitted), max(0, min(most - admitted, denied))
      left = left - of_admitted - of_denied
      return admitted - of_admitted, denied - of_denied
    end)
    return units - left
  end
end
local function class_of(kind, shape) -- built only if needed: each call of a script builds its functions again
  local name = kind == 'bucket' and shape > 0 and 'fixed' or kind -- refill=interval
  local class = classes[name] or setmetatable({}, {__index = BASE})
  if not classes[name] then ALGORITHMS[name](class) end
  class.__index, classes[name] = class, class
  return class
end
-- The identity of a rule or a state: its name, or else its algorithm, period and shape.
local function identity(it) return it.name ~= '' and '=' .. it.name or it.kind .. it.period .. '/' .. it.shape end
local function new(rule, last_us, units, old)
  local state = setmetatable(rule.class.of_units(rule, last_us, units, old), rule.class)
  state.kind, state.name, state.shape, state.period, state.last = rule.kind, rule.name, rule.shape, rule.period, last_us
  return state
end
-- Returns the state as a rule sees it, the time at which it is read, and, if the rule reshapes it, the old state's end.
-- The rule sees no state that has ended or is another algorithm's. At a limit of 0 nothing drains or is reshaped.
local function look(rule, at_us)
  local state = states[rule.id]
  local read_us = state and state.kind == rule.kind and effective_time(at_us, state.last, rule.window)
  if not read_us then return nil, at_us, NEVER end
  local is_same = state.period == rule.period and state.shape == rule.shape or rule.kind == 'log'
  if is_same or rule.limit == 0 and rule.class.drains then return state, read_us, NEVER end
  if state:ends() <= read_us then return nil, at_us, NEVER end
  return new(rule, state.last, state:used(state, state.last), state), read_us, state:ends()
end
local function save()
  local saved, until_us, late_us = {}, clock_us, 1e6
  for id, state in pairs(states) do
    local ends_us, values = state:ends(), {}
    local is_stale = has_new and not rules[id] and ends_us <= now_us - 2 * state.period -- dropped if one is added
    if ends_us > state.last and not is_stale then
      expect(ends_us <= 2 ^ 53, 'a bucket that drains in more than 142 years needs the module')
      until_us, late_us = max(until_us, ends_us + max(0, clock_us - now_us)), max(late_us, floor(state.period / 8))
      for i, field in ipairs(state.fields) do values[i] = state[field] end
      saved[#saved + 1] = values
    end
  end
  if #saved == 0 then return redis.call('DEL', KEYS[1]) end
  expect(#saved <= max(256, loaded), 'the key would hold %d states, expected at most 256', #saved)
  local expires_ms = ceil(until_us / 1000) + floor((late_us - floor(late_us / 8)) / 1000)
  redis.call('SET', KEYS[1], 'r\1' .. cmsgpack.pack(saved), 'PXAT', string.format('%.0f', expires_ms))
end
local function decide(at_us) -- sets each rule's denies, wait (or turn) and remaining; returns the longest denial
  local longest = 0
  for _, rule in ipairs(rules) do
    local seen, read_us, ends_us = look(rule, at_us)
    if rule.limit == 0 then seen = nil end -- nothing passes, so what was consumed does not matter
    local used, left = seen and seen:used(rule, read_us) or 0, rule.capacity - rule.cost
    rule.denies, rule.remaining = used > left, max(0, rule.capacity - used)
    local waits_for = rule.denies and left or rule.kind == 'leaky' and 0
    local until_us = seen and waits_for and seen:falls_to(waits_for, rule, read_us) or 0
    rule.wait = left < 0 and NEVER or ms_after(min(until_us, ends_us), at_us)
    if rule.denies and not rule.shadow then longest = max(longest, rule.wait) end
  end
  return longest
end
local function consume(is_denied) -- saves the states; returns whether a rule consumed
  local consumed = {}
  for _, rule in ipairs(rules) do
    local consumes = rule.cost > 0 and (rule.all or not is_denied)
    if consumes and rule.kind == 'log' then states['=' .. rule.name] = nil end -- drops another algorithm's
    if consumes and not consumed[rule.id] then
      local state, seen, at_us = states[rule.id], look(rule, now_us)
      has_new = has_new or not state or state.kind ~= rule.kind
      seen = seen or state and state.step_back and state:step_back(rule.window) or new(rule, now_us, 0)
      seen:consume(rule, at_us, is_denied)
      states[rule.id], consumed[rule.id] = seen, true
    end
  end
  if next(consumed) then save() end
  return next(consumed) ~= nil
end
local function precedes(one, other) -- the answer is the longer denial, else the rule that admits its cost fewer times
  if one.denies or other.denies then return one.denies and (not other.denies or one.wait > other.wait) end
  if one.cost == other.cost then return one.remaining < other.remaining end
  return one.cost > 0 and (other.cost == 0 or (muldiv(one.remaining, other.cost, one.cost)) < other.remaining)
end
local function check(may_change)
  local longest, best, turn = decide(now_us), nil, 0
  local is_denied = longest > 0
  local changes = may_change and longest < NEVER and consume(is_denied)
  if changes and is_denied then decide(now_us) end
  for _, rule in ipairs(rules) do
    if changes and not is_denied then rule.remaining = max(0, rule.remaining - rule.cost) end
    if not rule.shadow and (not best or precedes(rule, best)) then best = rule end
    if not rule.shadow then turn = max(turn, rule.wait) end
  end
  if not best then return {0, -1, -1, 0, 0} end
  local seen, read_us, ends_us = look(best, now_us)
  local clears_us = seen and min(seen:falls_to(0, best, seen.last), ends_us) or 0
  local reset_ms = clears_us > read_us and ms_after(clears_us, now_us) or 0
  local wait, remaining = is_denied and best.wait or turn, best.remaining
  -- After the clock stepped back, a state more than a window ahead is ignored at first, and may deny once later.
  for _ = 1, is_denied and wait < NEVER and #rules or 0 do wait = wait + decide(now_us + wait * 1000) end
  return {is_denied and 1 or 0, best.capacity, remaining, wait < NEVER and wait or -1, reset_ms}
end
local function refund(units) -- returns the most units that one state gives back
  local most = 0
  for id, state in pairs(states) do
    local rule = rules[id]
    local window_us = #rules == 0 and state.period or rule and rule.kind == state.kind and rule.window
    local at_us = window_us and effective_time(now_us, state.last, window_us)
    if at_us and state:ends() > at_us then most = max(most, state:refund(units, at_us, window_us)) end
  end
  if most > 0 then save() end
  return most
end

local UNITS = {
  ms = 1e3, s = 1e6, sec = 1e6, secs = 1e6, second = 1e6, seconds = 1e6, m = 6e7, min = 6e7, mins = 6e7, minute = 6e7,
  minutes = 6e7, h = 36e8, hour = 36e8, hours = 36e8, d = DAY_US, day = DAY_US, days = DAY_US, w = 7 * DAY_US,
  week = 7 * DAY_US, weeks = 7 * DAY_US, month = 31 * DAY_US,
}
local options -- the options of rules, built for the first rule that has one
local function number(text, least, most) -- a whole number within bounds, or nil
  local n = find(text or '', '^%d+$') and tonumber(text)
  return n and n >= least and n <= most and n or nil
end
local function parse(text)
  local function ensure(value, what, ...) return value or expect(nil, 'rule %q: expected ' .. what, text, ...) end
  local kind, body = match(text, '^(%a+):(.*)$')
  local limit, count, unit, rest = match(body or text, '^(%d+)/(%d*)([^,]*)(.*)$')
  kind, limit = kind or 'log', number(limit, 0, MOST_UNITS)
  ensure(ALGORITHMS[kind] and limit, 'limit/period of log, window, fixed, bucket, leaky; else it needs the module')
  ensure(kind ~= 'log' or limit <= 100000, 'at most 100000; use window or bucket instead')
  local period, is_month, given = (UNITS[unit] or 0) * (tonumber(count) or 1), unit == 'month', {}
  ensure(period >= 1e3 and period <= 366 * DAY_US, 'a period 1ms..366d')
  ensure(not is_month or kind == 'fixed' and period == UNITS.month, "'month' without a number, for fixed")
  -- Numbers have bounds, texts have a pattern, and other options list their texts. `of`: the only algorithm with it.
  options = options or rest ~= '' and {
    cost = {0, MOST_UNITS}, res = {of = 'window', 1, 60},
    burst = {of = 'bucket', 1, MOST_UNITS}, queue = {of = 'leaky', 0, MOST_UNITS},
    name = {pattern = '^[%w_.-]+$'}, tz = {of = 'fixed', pattern = '^[+-]%d%d:[0-5]%d$'},
    align = {of = 'fixed', ['align=epoch'] = 0, ['align=first'] = 3}, refill = {of = 'bucket', ['refill=interval'] = 3},
    count = {['count=all'] = 'all', ['count=allowed'] = 'allowed'}, shadow = {shadow = true},
  }
  for option in string.gmatch(rest, ',([^,]*)') do
    local name, value = match(option, '^([^=]*)=?(.*)$')
    local takes = options[name] or {of = 'the module'}
    ensure((takes.of or kind) == kind, 'an option of %s; %q needs %s', kind, name, takes.of)
    local found = takes[option] or takes[1] and number(value, takes[1], takes[2])
      or takes.pattern and #value <= 32 and match(value, takes.pattern)
    given[name] = ensure(not given[name] and found, '%s once, and with another value', option)
  end
  ensure(not is_month or given.align ~= 3, 'align=epoch, or a period in days')
  local shape = given.res or kind == 'window' and 1 or 0
  if kind == 'fixed' or given.refill then
    local sign, hours, minutes = match(given.tz or '+00:00', '(.)(..):(..)')
    local east = ensure(number(hours * 60 + minutes, 0, 840), 'tz=-14:00..+14:00') * tonumber(sign .. 1)
    shape = (east + 840) * 4 + max(given.align or given.refill or 0, is_month and 2 or find(unit, '^w') and 1 or 0)
  end
  local class, room = class_of(kind, shape), kind == 'leaky' and (given.queue or limit) + 1 or given.burst or limit
  local capacity = limit > 0 and room or 0
  ensure(not class.drains or capacity * period <= MOST_US * limit, 'to drain in 142 years; more needs the module')
  return {
    kind = kind, class = class, limit = limit, period = period, shape = shape, capacity = capacity,
    name = given.name or '', cost = given.cost, all = given.count == 'all', shadow = given.shadow,
  }
end
local function read_words() -- returns the command, and the units of a refund
  local command, costs, texts = string.upper(ARGV[1] or ''), {}, {}
  expect(#KEYS == 1 and find(KEYS[1], ':script$'), 'expected a key that ends with ":script", not %q', KEYS[1] or '')
  local units = command == 'REFUND' and number(ARGV[2], 0, MOST_UNITS)
  local is_known = units or command == 'CHECK' or command == 'PEEK' or command == 'RESET' and #ARGV == 1
  expect(is_known, 'expected CHECK, PEEK, REFUND 0..1000000000 or RESET; all else needs the module')
  local at = units and 3 or 2
  while ARGV[at] do
    local option, value = string.upper(ARGV[at]), ARGV[at + 1] or ''
    local most = option == 'AT' and MOST_US or option == 'COST' and not units and MOST_UNITS
    if not most then break end
    local name, cost = match(option == 'COST' and value or '', '^([%w_.-]+)=(.*)$')
    name = name or '=' .. option -- the time, or the cost of every rule
    local found = not costs[name] and number(cost or value, 0, most)
    costs[name] = expect(found, '%s %s: expected once, 0..%.0f; a range or more needs the module', option, value, most)
    at = at + 2
  end
  now_us = costs['=AT']
  for i = at, #ARGV do
    local rule = parse(ARGV[i])
    local name = identity(rule)
    expect(not texts[name], 'rule %q: expected another name= than that of rule %q', ARGV[i], texts[name])
    rule.id = rule.kind == 'log' and 'log' or name -- all log rules read one state
    rule.cost = costs[rule.name] or rule.cost or costs['=COST'] or 1
    if rule.kind == 'log' then
      expect(units or rule.cost == (rules.log or rule).cost, 'rule %q: expected the cost of other log rules', ARGV[i])
      for k, n in ipairs({rule.period, rule.limit, rule.all and 0 or 1}) do log_needs[k] = max(log_needs[k], n) end
    end
    costs[rule.name], texts[name] = nil, ARGV[i]
    rules[rule.id], rules[#rules + 1] = rule, rule
  end
  log_needs[3] = log_needs[3] * log_needs[2]
  for _, rule in ipairs(rules) do rule.window = rule.kind == 'log' and log_needs[1] or rule.period end
  costs['=AT'], costs['=COST'] = nil, nil
  expect(not next(costs), 'COST %s=: expected a rule with name=%s', next(costs), next(costs))
  expect((#rules > 0 or units or command == 'RESET') and #rules <= 32, '%d rules, expected 1 to 32', #rules)
  return command, units
end

local function main()
  local command, units = read_words()
  local saved, time = redis.pcall('GET', KEYS[1]), redis.pcall('TIME')
  local is_ours = not saved or type(saved) == 'string' and string.sub(saved, 1, 2) == 'r\1'
  if not is_ours then error("WRONGTYPE the key holds no value of this script; the module's need the module", 0) end
  if command == 'RESET' then return redis.call('DEL', KEYS[1]) end
  clock_us = time.err and now_us or not time.err and time[1] * 1e6 + time[2]
  now_us = expect(now_us or clock_us, 'the server refuses TIME in scripts, expected AT')
  for _, values in ipairs(saved and cmsgpack.unpack(string.sub(saved, 3)) or {}) do
    local state = setmetatable({}, class_of(values[1], values[3]))
    for i, field in ipairs(state.fields) do state[field] = values[i] end
    states[state.kind == 'log' and 'log' or identity(state)], loaded = state, loaded + 1
  end
  return units and refund(units) or check(command == 'CHECK')
end

local ok, reply = pcall(main)
-- Redis 6.2 puts a line number before the code of an error.
return ok and reply or {err = (string.gsub(reply, '^@user_script: %d+: %-', ''))}
