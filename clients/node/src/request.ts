import { isUtf8 } from 'node:buffer';

import type { Key } from './library.js';
import { FLAG, type Form, type Forms, inOrder, integer, show, SPAN, TEXT } from './options.js';

/** One text for each rule, `['5/15m', '20/h']`, a policy, `'@free'`, or the policy of the key's plan, `'@plan:free'`. */
export type Rules = string | readonly string[];

/** A key, and the rules that apply to it. */
export interface Limit {
  /** A text, bytes, or a whole number as its text. */
  key: string | Uint8Array | number;
  rules: Rules;
}

/** A limit whose key and rules have been tested. */
export interface Read {
  key: Key;
  rules: readonly string[];
}

/**
 * The units that a check consumes: 1 by default. A range `[a, b]` takes as much as passes. `{ in: 3000, out: 1000 }` are the
 * costs of the rules with these names, and `''` is that of all others.
 */
export type Cost = number | readonly [least: number, most: number] | Readonly<Record<string, number>>;

/** The hold that a check takes. */
export interface HoldOptions {
  id: string;
  ttlMs: number;
  /** Whether the whole cost is given back if the hold ends without being settled. */
  refund?: boolean;
  /** Nobody has used this id before, so a remembered denial may answer. */
  fresh?: boolean;
}

export interface CheckOptions {
  cost?: Cost;
  /** A text for `RL.LOG`, such as who asks. */
  meta?: string;
  /** Takes a hold with the check; {@link RateLimiter.hold} does more. */
  hold?: HoldOptions;
}

/** Where a caller stands in line. */
export interface Turn {
  /** Takes turns with the other flows, in proportion to their weights. */
  flow?: string;
  /** 1 to 1000, 1 by default. */
  weight?: number;
  /** 0 to 9, 0 by default: callers of a higher priority go first. */
  priority?: number;
}

/** The most units that a check may cost. */
const MOST_UNITS = 1_000_000_000;
export const UNITS = integer(0, MOST_UNITS);
const isUnits = UNITS[1];

export const COST: Form = [
  'whole units up to 10^9, a range of units or units by name',
  (value) => {
    if (typeof value !== 'object' || value === null) return isUnits(value);
    if (!Array.isArray(value)) return Object.values(value).every(isUnits);
    const [least, most] = value as unknown[];
    return value.length === 2 && value.every(isUnits) && (least as number) >= 1 && (least as number) <= (most as number);
  },
];
const HOLD: Forms<HoldOptions> = { id: TEXT, ttlMs: SPAN, refund: FLAG, fresh: FLAG };
export const CHECK: Forms<CheckOptions> = { cost: COST, meta: TEXT, hold: ['a hold', (value) => (inOrder('hold', value as object, HOLD), true)] };
export const TURN: Forms<Turn> = { flow: TEXT, weight: integer(1, 1000), priority: integer(0, 9) };

/** The rules as a list that is not empty. */
export function list(rules: Rules): readonly string[] {
  if (typeof rules === 'string' && rules !== '') return [rules];
  if (Array.isArray(rules) && rules.length > 0 && rules.every((rule) => typeof rule === 'string' && rule !== '')) return rules as readonly string[];
  throw new TypeError(`the rules are ${Array.isArray(rules) ? `[${rules.map(show)}]` : show(rules)}, expected a rule such as '5/15m', or a list of rules`);
}

/** A key as the server gets it. */
export function keyOf(key: unknown): Key {
  if (typeof key === 'string' && key !== '') return key;
  if (Number.isSafeInteger(key)) return String(key);
  if (key instanceof Uint8Array && key.length > 0) {
    const bytes = Buffer.from(key.buffer, key.byteOffset, key.length);
    return isUtf8(bytes) ? bytes.toString() : bytes;
  }
  throw new TypeError(`the key is ${show(key)}, expected a text that is not empty, bytes or a whole number`);
}

/** Tests the limits of a check. */
export function readLimits(limits: readonly Limit[]): readonly Read[] {
  if (!Array.isArray(limits) || limits.length === 0) throw new TypeError(`the limits are ${show(limits)}, expected a list of keys and their rules`);
  return limits.map(({ key, rules }) => ({ key: keyOf(key), rules: list(rules) }));
}

export function followAPlan(rules: readonly string[]): boolean {
  return rules.some((rule) => rule.startsWith('@plan:'));
}

/** The rules of several keys. */
export function groups(limits: readonly Read[]): string[] {
  return limits.flatMap(({ rules }, i) => (i === 0 ? rules : ['NEXT', ...rules]));
}

/**
 * The cost for each of several keys that are checked one by one. The server refuses a name that no rule of the key has, so each
 * key gets the names of its own rules; a key with a policy gets all names, because only the server knows the policy's rules. A
 * name that fits no key goes to all keys, so that the server refuses it as it would if they were checked together.
 */
export function costsApart(cost: Cost, limits: readonly Read[]): Cost[] {
  if (typeof cost === 'number') return limits.map(() => cost);
  if (isRange(cost)) throw new TypeError('a range of costs needs one decision over all keys, without `separately`');
  const takes = (name: string, { rules }: Read): boolean =>
    rules.some((rule) => rule.startsWith('@') || rule.split(',').includes(`name=${name}`));
  const entries = Object.entries(cost);
  const everywhere = entries.filter(([name]) => !name || !limits.some((limit) => takes(name, limit)));
  return limits.map((limit) => Object.fromEntries([...everywhere, ...entries.filter(([name]) => takes(name, limit))]));
}

/** The options as the server's commands take them. */
export function words({ cost, meta, hold, flow, weight, priority }: CheckOptions & Turn): string[] {
  const found = flow === undefined ? [] : ['FLOW', flow];
  if (weight !== undefined) found.push('WEIGHT', String(weight));
  if (priority !== undefined) found.push('PRIORITY', String(priority));
  if (cost !== undefined) found.push(...costs(cost));
  if (meta !== undefined) found.push('META', meta);
  if (hold) found.push('HOLD', hold.id, 'PX', String(Math.ceil(hold.ttlMs)), ...(hold.refund ? ['REFUND'] : []));
  return found;
}

function costs(cost: Cost): string[] {
  if (typeof cost === 'number') return ['COST', String(cost)];
  if (isRange(cost)) return ['COST', cost.join('..')];
  return Object.entries(cost).flatMap(([name, units]) => ['COST', name ? `${name}=${units}` : String(units)]);
}

export function isRange(cost: Cost): cost is readonly [number, number] {
  return Array.isArray(cost);
}
