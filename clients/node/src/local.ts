// A limiter in the process, for as long as the server is away. It is approximate: `bucket` and `leaky` are token
// buckets (`leaky` does not queue), `slots` counts the holds taken here, and every other rule is a window that its
// first request opens. It knows no blocks, no bans, and no pauses of other processes. Its counts last into the next
// outage, as long as their windows do.

import type { SettleOptions } from './hold.js';
import { deciding, type Report, type RuleReport } from './replies.js';
import { type CheckOptions, isRange, type Limit, list, type Rules } from './request.js';
import { ownCost, readRule, type Rule } from './rule.js';

const MOST_KEYS = 10_000;

interface State {
  /** When the window opened, or when the bucket was last filled. */
  at: number;
  /** When the window opened, or when the bucket was last full: units consumed earlier no longer count. */
  opened: number;
  /** The units used in the window, or missing from the bucket. */
  used: number;
  holds: Map<string, Held>;
}

interface Held {
  until: number;
  since: number;
  units: number;
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
    const found = limits.flatMap(({ key, rules }) =>
      this.#rules(rules).map((rule) => ({ key, rule, state: this.#state(now, key, rule) })),
    );
    const lives = hold && found.some(({ state }) => state.holds.has(hold.id));
    const range = isRange(cost) ? cost : undefined;
    const open = found.filter(({ rule }) => !rule.shadow && ownCost(rule, cost) === undefined);
    const left = open.map(({ rule, state }) => rule.capacity - usedOf(now, rule, state));
    const units = range ? Math.max(range[0], Math.floor(Math.min(range[1], ...left))) : (cost as number);

    const costOf = ({ rule }: { rule: Rule }): number => (lives ? 0 : (ownCost(rule, cost) ?? units));
    const waits = found.map((one) => waitOf(now, one.rule, one.state, costOf(one)));
    const pausedMs = lives ? 0 : Math.ceil(Math.max(0, ...limits.map(({ key }) => (this.#pauses.get(key) ?? now) - now)));
    const denied = pausedMs > 0 || found.some(({ rule }, i) => !rule.shadow && waits[i] !== 0);
    const rules = found.map((one, i): RuleReport => {
      const { key, rule, state } = one;
      if (!denied && !peek && !lives) consume(now, rule, state, costOf(one), hold);
      const used = usedOf(now, rule, state);
      return {
        rule: rule.text,
        name: rule.name,
        ...(limits.length > 1 && { key }),
        cost: costOf(one),
        denies: waits[i] !== 0,
        shadow: rule.shadow,
        limit: rule.capacity,
        quota: rule.quota,
        periodMs: rule.periodMs,
        remaining: Math.max(0, Math.floor(rule.capacity - used)),
        waitMs: waits[i]!,
        nextMs: used > 0 ? waitOf(now, rule, state, Math.floor(rule.capacity - used) + 1) : 0,
        resetMs: resetOf(now, rule, state, used),
      };
    });
    const waiting = rules.filter(({ denies, shadow }) => denies && !shadow).map(({ waitMs }) => waitMs);
    const waitMs = waiting.includes(-1) ? -1 : Math.max(pausedMs, ...waiting);
    const granted = range && { granted: denied ? 0 : units };
    const report: Report = { verdict: denied ? 'limited' : 'allowed', waitMs, ...granted, rules, source: 'local' };
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
    const found = [...(this.#keys.get(key)?.values() ?? [])].flatMap((state) => state.holds.get(id) ?? []);
    const holds = found.filter(({ until }) => now < until);
    for (const hold of holds) hold.until = now + ttlMs;
    return holds.length > 0;
  }

  /** Ends a hold, which frees its slots; its other units come back with `refund`, or become `cost`. `false` without such a hold. */
  settle(key: string, id: string, options: SettleOptions = {}): boolean {
    const states = [...(this.#keys.get(key)?.values() ?? [])].filter(({ holds }) => holds.has(id));
    for (const state of states) end(state, id, options);
    return states.length > 0;
  }

  #rules(rules: Rules): Rule[] {
    return list(rules).flatMap((text) =>
      text.startsWith('@') ? this.#rules(this.#policies[text.replace(/^@(plan:)?/, '')] ?? []) : readRule(text, this.#processes),
    );
  }

  #state(now: number, key: string, { identity }: Rule): State {
    const states = this.#keys.get(key) ?? new Map<string, State>();
    newest(this.#keys, key, states);
    let state = states.get(identity);
    if (!state) states.set(identity, (state = { at: now, opened: now, used: 0, holds: new Map() }));
    for (const [id, { until, refund }] of state.holds) if (until <= now) end(state, id, { refund });
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
function end(state: State, id: string, { cost, refund }: SettleOptions): void {
  const { rule, units, since } = state.holds.get(id)!;
  state.holds.delete(id);
  const real = cost === undefined ? units : (ownCost(rule, typeof cost === 'number' ? cost : { '': units, ...cost }) ?? (cost as number));
  const more = refund ? -units : real - units;
  if (more > 0 || state.opened <= since) state.used = Math.max(0, state.used + more);
}

function usedOf(now: number, { kind, quota, periodMs }: Rule, { at, used, holds }: State): number {
  if (kind === 'slots') return [...holds.values()].reduce((sum, { units }) => sum + units, 0);
  if (kind === 'window') return now < at + periodMs ? used : 0;
  return Math.max(0, used - ((now - at) * quota) / periodMs);
}

/** How long until a check of this cost passes: 0 now, -1 never. */
function waitOf(now: number, rule: Rule, state: State, cost: number): number {
  const { kind, quota, periodMs } = rule;
  const capacity = kind === 'leaky' && quota > 0 ? Math.max(rule.capacity, cost) : rule.capacity;
  const missing = usedOf(now, rule, state) + cost - capacity;
  if (missing <= 0) return 0;
  if (cost > capacity) return -1;
  if (kind === 'slots') return Math.ceil(Math.min(...[...state.holds.values()].map(({ until }) => until)) - now);
  return Math.ceil(kind === 'window' ? state.at + periodMs - now : (missing * periodMs) / quota);
}

function resetOf(now: number, { kind, quota, periodMs }: Rule, { at, holds }: State, used: number): number {
  if (used <= 0) return 0;
  if (kind === 'slots') return Math.ceil(Math.max(...[...holds.values()].map(({ until }) => until)) - now);
  return Math.ceil(kind === 'window' ? at + periodMs - now : (used * periodMs) / quota);
}

function consume(now: number, rule: Rule, state: State, cost: number, hold: CheckOptions['hold']): void {
  if (hold) state.holds.set(hold.id, { until: now + hold.ttlMs, since: now, units: cost, rule, refund: hold.refund === true });
  if (rule.kind === 'slots') return;
  const used = usedOf(now, rule, state);
  if (rule.kind !== 'window' || used === 0) state.at = now;
  if (used === 0) state.opened = now;
  state.used = used + cost;
}
