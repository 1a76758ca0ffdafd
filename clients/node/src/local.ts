// An estimate of the limits in this process, for as long as the server is away. It has one counter for each rule and key: a window
// that begins with its first request (`log`, `window`, `fixed`), a token bucket (`bucket`, `leaky`), or the holds in force (`slots`).
// It never passes more than its share of a limit at once, nor more than twice that in a period, and after a wait the request
// passes if nobody else asks. All times are milliseconds of one clock that never goes back.

import type { SettleOptions } from './hold.js';
import { type Key, nameOf } from './library.js';
import { deciding, type Report, type RuleReport } from './replies.js';
import { type CheckOptions, isRange, list, type Read, type Rules } from './request.js';
import { defaultCost, ownCost, readRule, type Rule } from './rule.js';

const MOST_KEYS = 10_000;
/** Less than any unit: what rounding leaves of used units. */
const ERROR = 1e-9;

interface Counter {
  rule: Rule;
  /** The units used at `at`. */
  used: number;
  at: number;
  /** When the window ends. */
  ends: number;
  holds: Map<string, Held>;
}

interface Held {
  units: number;
  until: number;
  /** The window in which the units were used. */
  window: number;
  /** Whether the rule took the default cost, which a settlement may replace. */
  byDefault: boolean;
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

export class LocalLimiter {
  readonly #processes: number;
  readonly #policies: Readonly<Record<string, Rules>>;
  readonly #keys = new Map<string, Map<string, Counter>>();
  /** When the pauses of keys end. */
  readonly #pauses = new Map<string, number>();

  constructor({ processes = 1, policies = {} }: LocalOptions) {
    this.#processes = processes;
    this.#policies = policies;
  }

  decide(now: number, limits: readonly Read[], { cost = 1, hold }: CheckOptions, peek = false): Report {
    const range = isRange(cost) ? cost : undefined;
    const found = limits.flatMap(({ key, rules }) =>
      this.#rules(rules).map((rule) => {
        const counter = this.#counter(now, nameOf(key), rule, peek);
        return { key, rule, counter, own: hold && counter.holds.has(hold.id) ? 0 : ownCost(rule, cost) };
      }),
    );
    const lefts = found.flatMap(({ rule, counter, own }) => (own === undefined && !rule.shadow ? Math.floor(leftOf(now, counter)) : []));
    const pausedMs = Math.max(0, ...limits.map(({ key }) => Math.ceil((this.#pauses.get(nameOf(key)) ?? now) - now)));
    const waits = found.map(({ counter, own }) => waitOf(now, counter, own ?? defaultCost(cost)));
    const denied = pausedMs > 0 || found.some(({ rule }, i) => !rule.shadow && waits[i] !== 0);
    const granted = range && (denied ? 0 : Math.max(range[0], Math.min(range[1], ...lefts)));
    const unitsOf = (own: number | undefined) => own ?? (granted || defaultCost(cost));
    if (!denied && !peek) {
      for (const { counter, own } of found) {
        const units = unitsOf(own);
        take(now, counter, units);
        const held = hold && counter.holds.get(hold.id);
        if (held) held.until = now + hold.ttlMs;
        else if (hold) counter.holds.set(hold.id, { units, until: now + hold.ttlMs, window: counter.ends, byDefault: own === undefined, refund: hold.refund === true });
      }
    }
    const rules = found.map(({ key, rule, counter, own }, i): RuleReport => {
      const [used, left] = [usedOf(now, counter), leftOf(now, counter)];
      const { text, name, shadow, capacity: limit, quota, periodMs } = rule;
      const nextMs = limit === 0 ? -1 : used > ERROR ? until(now, counter, Math.floor(left) + 1 - left) : 0;
      const resetMs = used > ERROR ? until(now, counter, used) : 0;
      const counted = { cost: unitsOf(own), remaining: Math.max(0, Math.floor(left)), waitMs: waits[i]!, nextMs, resetMs };
      return { rule: text, name, ...(limits.length > 1 && { key: String(key) }), denies: waits[i] !== 0, shadow, limit, quota, periodMs, ...counted };
    });
    const waiting = rules.filter(({ denies, shadow }) => denies && !shadow).map(({ waitMs }) => waitMs);
    const waitMs = waiting.includes(-1) ? -1 : Math.max(pausedMs, ...waiting);
    const report: Report = { verdict: denied ? 'limited' : 'allowed', waitMs, ...(granted !== undefined && { granted }), rules, source: 'local' };
    if (limits.length > 1) report.key = (denied ? deciding(report)?.key : undefined) ?? String(limits[0]!.key);
    return report;
  }

  /** Denies every check of a key for `ms`; a pause that lasts longer stays. Returns how many milliseconds are left. */
  pause(now: number, key: Key, ms: number): number {
    const left = Math.max(ms, (this.#pauses.get(nameOf(key)) ?? now) - now);
    newest(this.#pauses, nameOf(key), now + left);
    return Math.ceil(left);
  }

  resume(key: Key): boolean {
    return this.#pauses.delete(nameOf(key));
  }

  /** Forgets what was used. A pause stays. */
  reset(key: Key): boolean {
    return this.#keys.delete(nameOf(key));
  }

  /** Gives units back to the counters of some rules, or of all. Returns the largest number that one got back. */
  refund(now: number, key: Key, units: number, rules?: readonly string[]): number {
    const named = rules && new Set(this.#rules(rules).map(({ identity }) => identity));
    const counters = [...(this.#keys.get(nameOf(key))?.values() ?? [])].filter(({ rule }) => named?.has(rule.identity) ?? true);
    const backs = counters.map((counter) => Math.min(units, Math.ceil(usedOf(now, counter) - ERROR)));
    counters.forEach((counter, i) => take(now, counter, -backs[i]!));
    return Math.max(0, ...backs);
  }

  /** Moves the end of a hold; `false` without such a hold. */
  renew(now: number, key: Key, id: string, ttlMs: number): boolean {
    const counters = this.#holding(now, key, id);
    for (const { holds } of counters) holds.get(id)!.until = now + ttlMs;
    return counters.length > 0;
  }

  /** Ends a hold, which frees its slots; its other units come back with `refund`, or become `cost`. `false` without such a hold. */
  settle(now: number, key: Key, id: string, options: SettleOptions): boolean {
    const counters = this.#holding(now, key, id);
    for (const counter of counters) end(now, counter, id, options);
    return counters.length > 0;
  }

  #holding(now: number, key: Key, id: string): Counter[] {
    const counters = [...(this.#keys.get(nameOf(key))?.values() ?? [])];
    for (const counter of counters) lapse(now, counter);
    return counters.filter(({ holds }) => holds.has(id));
  }

  #rules(rules: readonly string[]): Rule[] {
    return rules.flatMap((text) => {
      if (!text.startsWith('@')) return readRule(text, this.#processes);
      const name = text.replace(/^@(plan:)?/, '');
      return Object.hasOwn(this.#policies, name) ? this.#rules(list(this.#policies[name]!)) : [];
    });
  }

  /** A peek keeps no new key. */
  #counter(now: number, key: string, rule: Rule, peek: boolean): Counter {
    const counters = this.#keys.get(key) ?? new Map<string, Counter>();
    if (!peek) newest(this.#keys, key, counters);
    let counter = counters.get(rule.identity);
    if (counter) lapse(now, counter);
    else counters.set(rule.identity, (counter = { rule, used: 0, at: now, ends: now, holds: new Map() }));
    return counter;
  }
}

/** Sets the entry of a key. If there are now too many entries, forgets the oldest. */
function newest<T>(keys: Map<string, T>, key: string, entry: T): void {
  keys.delete(key);
  keys.set(key, entry);
  if (keys.size > MOST_KEYS) keys.delete(keys.keys().next().value!);
}

/** Ends the holds whose time is over. */
function lapse(now: number, counter: Counter): void {
  for (const [id, { until, refund }] of counter.holds) if (until <= now) end(now, counter, id, { refund });
}

/** Ends a hold. What it took comes back with `refund`, or becomes `cost`, as far as it still counts. */
function end(now: number, counter: Counter, id: string, { cost, refund }: SettleOptions): void {
  const held = counter.holds.get(id)!;
  const more = (refund ? 0 : settled(counter.rule, held, cost)) - held.units;
  counter.holds.delete(id);
  if (more > 0 || counter.rule.kind !== 'window' || held.window === counter.ends) take(now, counter, more);
}

function settled({ name }: Rule, { units, byDefault }: Held, cost: SettleOptions['cost'] = {}): number {
  const named = typeof cost === 'number' ? { '': cost } : cost;
  if (name !== null && Object.hasOwn(named, name)) return named[name]!;
  return byDefault ? (named[''] ?? units) : units;
}

/** Takes units, or gives them back if there are fewer than 0. */
function take(now: number, counter: Counter, units: number): void {
  if (counter.rule.kind === 'slots') return;
  counter.used = Math.max(0, usedOf(now, counter) + units);
  counter.at = now;
  if (now >= counter.ends) counter.ends = now + counter.rule.periodMs;
}

function usedOf(now: number, { rule: { kind, quota, periodMs }, used, at, ends, holds }: Counter): number {
  if (kind === 'slots') return [...holds.values()].reduce((sum, { units }) => sum + units, 0);
  if (kind === 'window') return now < ends ? used : 0;
  return Math.max(0, used - ((now - at) * quota) / periodMs);
}

function leftOf(now: number, counter: Counter): number {
  return counter.rule.capacity - usedOf(now, counter) + ERROR;
}

/** How long until a check of this cost passes: 0 now, -1 never. */
function waitOf(now: number, counter: Counter, cost: number): number {
  const missing = cost - leftOf(now, counter);
  if (missing <= 0 || cost === 0) return 0;
  return cost > counter.rule.capacity ? -1 : until(now, counter, missing);
}

/** How long until this number of the used units no longer counts; -1: never. */
function until(now: number, { rule: { kind, quota, periodMs }, ends, holds }: Counter, units: number): number {
  if (kind === 'window') return Math.max(1, Math.ceil(ends - now));
  if (kind === 'bucket') return quota > 0 ? Math.max(1, Math.ceil((units * periodMs) / quota)) : -1;
  const last = [...holds.values()].sort((one, other) => one.until - other.until).find((held) => (units -= held.units) <= ERROR);
  return last ? Math.max(1, Math.ceil(last.until - now)) : -1;
}
