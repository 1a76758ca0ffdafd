// A limiter in the process, for as long as the server is away. It is approximate: `bucket` and `leaky` are token
// buckets (`leaky` does not queue), `slots` counts the holds taken here, and every other rule is a window that its
// first request opens. It knows no blocks, no bans, and no pauses of other processes. Its counts last into the next
// outage, as long as their windows do.

import type { SettleOptions } from './hold.js';
import { deciding, type Report, type RuleReport } from './replies.js';
import { type CheckOptions, isRange, type Limit, list, type Rules } from './request.js';
import { defaultCost, ownCost, readRule, type Rule } from './rule.js';

const MOST_KEYS = 10_000;
/** Of a key, as on the server. */
const MOST_HOLDS = 10_000;
/** Less than any unit: what rounding leaves of used units. */
const ERROR = 1e-9;

interface State {
  /** When the window opened, or when the bucket was last full. */
  opened: number;
  /** When `used` was set. */
  at: number;
  /** The units used in the window, or missing from the bucket then. */
  used: number;
  /** The units that have ever drained from the bucket. */
  drained: number;
  /** In the order in which they were taken. */
  holds: Map<string, Held>;
}

interface Held {
  until: number;
  /** When the units were consumed; for a bucket, what it owed and what had drained then. */
  mark: number;
  units: number;
  /** Whether the rule took the default cost, which a settlement may replace. */
  byDefault: boolean;
  rule: Rule;
  refund: boolean;
}

export interface LocalOptions {
  /** How many processes serve: without the server, each enforces its part of every limit. 1 by default. */
  processes?: number;
  /**
   * The rules of each policy, for when the server is away. A policy that is missing here lets every request pass. Plans are not
   * known here: `@plan:free` means `free`.
   */
  policies?: Readonly<Record<string, Rules>>;
}

/** All times are milliseconds of one clock that never goes back. */
export class LocalLimiter {
  readonly #processes: number;
  readonly #policies: Readonly<Record<string, Rules>>;
  readonly #keys = new Map<string, Map<string, State>>();
  /** When the pauses of keys end. */
  readonly #pauses = new Map<string, number>();

  constructor({ processes = 1, policies = {} }: LocalOptions = {}) {
    this.#processes = processes;
    this.#policies = policies;
  }

  decide(now: number, limits: readonly Limit[], { cost = 1, hold }: CheckOptions = {}, peek = false): Report {
    for (const { key } of limits) this.#use(now, key);
    const found = limits.flatMap(({ key, rules }) =>
      this.#rules(rules).map((rule) => ({ key, rule, state: this.#state(key, rule, peek) })),
    );
    const repeats = limits.flatMap(({ key }) => this.#holds(key, hold?.id).map((held) => ({ key, held })));
    const repeated = new Set(repeats.map(({ key }) => key));
    const range = isRange(cost) ? cost : undefined;
    const before = repeats.filter(({ held }) => held.byDefault && !held.rule.shadow).map(({ held }) => held.units);
    const open = found.filter(({ key, rule }) => !repeated.has(key) && !rule.shadow && ownCost(rule, cost) === undefined);
    const left = open.map(({ rule, state }) => leftOf(rule, usedOf(now, rule, state)));
    const granted = range ? Math.max(range[0], Math.min(range[1], ...left, ...before)) : 0;
    if (hold && found.some(({ key, state }) => state.holds.size >= MOST_HOLDS && !repeated.has(key))) {
      throw new RangeError(`too many holds of a key, expected at most ${MOST_HOLDS}`);
    }
    const ask = (units: number): { units: number; waitMs: number }[] =>
      found.map(({ key, rule, state }) => {
        if (repeated.has(key)) return { units: 0, waitMs: 0 };
        const own = ownCost(rule, cost) ?? units;
        return { units: own, waitMs: waitOf(now, rule, state, own) };
      });

    let asked = ask(defaultCost(cost));
    const pauses = limits.map(({ key }) => (repeated.has(key) ? 0 : (this.#pauses.get(key) ?? now) - now));
    const pausedMs = Math.ceil(Math.max(0, ...pauses));
    const denied = pausedMs > 0 || found.some(({ rule }, i) => !rule.shadow && asked[i]!.waitMs !== 0);
    if (range && !denied) asked = ask(granted);
    if (!denied && !peek) {
      if (hold) for (const { held } of repeats) held.until = now + hold.ttlMs;
      found.forEach(({ key, rule, state }, i) => repeated.has(key) || consume(now, rule, state, asked[i]!.units, ownCost(rule, cost) === undefined, hold));
    }
    const rules = found.map(({ key, rule, state }, i): RuleReport => {
      const used = usedOf(now, rule, state);
      const remaining = Math.max(0, leftOf(rule, used));
      return {
        rule: rule.text,
        name: rule.name,
        ...(limits.length > 1 && { key }),
        cost: asked[i]!.units,
        denies: asked[i]!.waitMs !== 0,
        shadow: rule.shadow,
        limit: rule.capacity,
        quota: rule.quota,
        periodMs: rule.periodMs,
        remaining,
        waitMs: asked[i]!.waitMs,
        nextMs: rule.capacity === 0 ? -1 : used > 0 ? until(now, rule, state, used + remaining + 1 - rule.capacity) : 0,
        resetMs: until(now, rule, state, used),
      };
    });
    const waiting = rules.filter(({ denies, shadow }) => denies && !shadow).map(({ waitMs }) => waitMs);
    const waitMs = waiting.includes(-1) ? -1 : Math.max(pausedMs, ...waiting);
    const report: Report = { verdict: denied ? 'limited' : 'allowed', waitMs, ...(range && { granted: denied ? 0 : granted }), rules, source: 'local' };
    if (limits.length > 1) report.key = (denied ? deciding(report)?.key : undefined) ?? limits[0]!.key;
    return report;
  }

  /** Denies every check of a key for `ms`; a pause that lasts longer stays. Returns how many milliseconds are left. */
  pause(now: number, key: string, ms: number): number {
    const left = Math.max(ms, (this.#pauses.get(key) ?? now) - now);
    newest(this.#pauses, key, now + left);
    return Math.ceil(left);
  }

  resume(key: string): void {
    this.#pauses.delete(key);
  }

  /** Forgets what was consumed. A pause stays. */
  reset(key: string): void {
    this.#keys.delete(key);
  }

  /** Moves the end of a hold; `false` without such a hold. */
  renew(now: number, key: string, id: string, ttlMs: number): boolean {
    this.#use(now, key);
    const holds = this.#holds(key, id);
    for (const hold of holds) hold.until = now + ttlMs;
    return holds.length > 0;
  }

  /** Ends a hold, which frees its slots; its other units come back with `refund`, or become `cost`. `false` without such a hold. */
  settle(now: number, key: string, id: string, options: SettleOptions = {}): boolean {
    this.#use(now, key);
    const states = this.#states(key).filter(({ holds }) => holds.has(id));
    for (const state of states) end(now, state, id, options);
    return states.length > 0;
  }

  #states(key: string): State[] {
    return [...(this.#keys.get(key)?.values() ?? [])];
  }

  /** What a hold has taken of each state. */
  #holds(key: string, id: string | undefined): Held[] {
    return id === undefined ? [] : this.#states(key).flatMap(({ holds }) => holds.get(id) ?? []);
  }

  /** Ends the holds that have lapsed, and makes the key the one that was used last. */
  #use(now: number, key: string): void {
    const states = this.#keys.get(key);
    if (states) newest(this.#keys, key, states);
    for (const state of this.#states(key)) {
      const lapsed = [...state.holds].filter(([, { until }]) => until <= now).sort(([id, one], [otherId, other]) => one.until - other.until || (id < otherId ? -1 : 1));
      for (const [id, { until, refund }] of lapsed) end(until, state, id, { refund });
    }
  }

  #rules(rules: Rules): Rule[] {
    return list(rules).flatMap((text) =>
      text.startsWith('@') ? this.#rules(this.#policy(text.replace(/^@(plan:)?/, ''))) : readRule(text, this.#processes),
    );
  }

  #policy(name: string): Rules {
    return Object.hasOwn(this.#policies, name) ? this.#policies[name]! : [];
  }

  /** A peek keeps no new key. */
  #state(key: string, { identity }: Rule, peek: boolean): State {
    const states = this.#keys.get(key) ?? new Map<string, State>();
    if (!peek) newest(this.#keys, key, states);
    let state = states.get(identity);
    if (!state) states.set(identity, (state = { at: 0, opened: 0, used: 0, drained: 0, holds: new Map() }));
    return state;
  }
}

/** Sets the entry of a key. If there are now too many entries, forgets the oldest. */
function newest<T>(keys: Map<string, T>, key: string, entry: T): void {
  keys.delete(key);
  keys.set(key, entry);
  if (keys.size > MOST_KEYS) keys.delete(keys.keys().next().value!);
}

/** Ends a hold. What it took comes back with `refund`, or becomes `cost`. */
function end(now: number, state: State, id: string, { cost, refund }: SettleOptions): void {
  const held = state.holds.get(id)!;
  const { rule, units } = held;
  const more = refund || rule.kind === 'slots' ? -units : settled(held, cost) - units;
  if (more > 0) take(now, rule, state, more);
  else giveBack(now, state, held, -more);
  state.holds.delete(id);
}

/** Takes units of a hold off, as far as they still count. */
function giveBack(now: number, state: State, held: Held, units: number): void {
  const { rule, mark } = held;
  pass(now, rule, state);
  // All that has drained since counts as drained from what was owed then. In a bucket that was never empty meanwhile, the
  // server gives back more.
  const left = isBucket(rule) ? mark - state.drained : state.opened <= mark ? units : 0;
  const back = Math.max(0, Math.min(units, left, state.used));
  state.used -= back;
  if (!isBucket(rule) || back === 0) return;
  const holds = [...state.holds.values()];
  for (const later of holds.slice(holds.indexOf(held))) later.mark -= back;
}

function settled({ rule: { name }, units, byDefault }: Held, cost: SettleOptions['cost'] = {}): number {
  const named = typeof cost === 'number' ? { '': cost } : cost;
  if (name !== null && Object.hasOwn(named, name)) return named[name]!;
  return byDefault ? (named[''] ?? units) : units;
}

function usedOf(now: number, { kind, quota, periodMs }: Rule, { at, opened, used, holds }: State): number {
  if (kind === 'slots') return [...holds.values()].reduce((sum, { units }) => sum + units, 0);
  if (kind === 'window') return now < opened + periodMs ? used : 0;
  const left = used - ((now - at) * quota) / periodMs;
  return left > ERROR ? left : 0;
}

/** How long until a check of this cost passes: 0 now, -1 never. */
function waitOf(now: number, rule: Rule, state: State, cost: number): number {
  if (cost === 0 && rule.capacity === 0) return 0;
  const capacity = rule.kind === 'leaky' && rule.quota > 0 ? Math.max(rule.capacity, cost) : rule.capacity;
  return cost > capacity ? -1 : until(now, rule, state, usedOf(now, rule, state) + cost - capacity);
}

function leftOf({ capacity }: Rule, used: number): number {
  return Math.floor(capacity - used + ERROR);
}

/** How long until `over` of the used units no longer count: 0 now, -1 never. */
function until(now: number, rule: Rule, { opened, holds }: State, over: number): number {
  const { kind, quota, periodMs } = rule;
  if (over <= ERROR) return 0;
  if (isBucket(rule)) return quota > 0 ? wholeMs((over * periodMs) / quota) : -1;
  if (kind === 'window') return wholeMs(opened + periodMs - now);
  const ends = [...holds.values()].sort((one, other) => one.until - other.until);
  const last = ends.find(({ units }) => (over -= units) <= 0);
  return last ? wholeMs(last.until - now) : -1;
}

/** A rounding error is no millisecond. */
function wholeMs(ms: number): number {
  return Math.max(1, Math.ceil(ms - 1e-6));
}

function consume(now: number, rule: Rule, state: State, cost: number, byDefault: boolean, hold: CheckOptions['hold']): void {
  const units = rule.kind === 'slots' ? cost : take(now, rule, state, cost);
  if (!hold) return;
  const mark = isBucket(rule) ? state.used + state.drained : now;
  state.holds.set(hold.id, { until: now + hold.ttlMs, mark, units: Math.floor(units), byDefault, rule, refund: hold.refund === true });
}

/** Adds units, and returns how many: on trial a bucket fills no further than its burst. */
function take(now: number, rule: Rule, state: State, units: number): number {
  pass(now, rule, state);
  const most = rule.shadow && isBucket(rule) ? rule.capacity : Infinity;
  if (state.used === 0) state.opened = now;
  const taken = Math.max(0, Math.min(units, most - state.used));
  state.used += taken;
  return taken;
}

/** Forgets what no longer counts. */
function pass(now: number, rule: Rule, state: State): void {
  const used = usedOf(now, rule, state);
  state.drained += state.used - used;
  state.used = used;
  state.at = now;
}

function isBucket({ kind }: Rule): boolean {
  return kind === 'bucket' || kind === 'leaky';
}
