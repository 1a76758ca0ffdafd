import { type Cost, isRange } from './request.js';

const RULE = /^(?:(log|window|fixed|bucket|leaky|slots):)?(\d+)(?:\/(\d*)([a-z]+))?((?:,[^,]+)*)$/;
/** `[algorithm:]limit/period[,option=value]*`, or a policy. */
const SHAPE = /^(@\S+|slots:\d+(,[^\s,]+)*|(?!slots:)([a-z]+:)?\d+\/\d*[a-z]+(,[^\s,]+)*)$/;
const UNITS = [
  [/^ms$/, 1],
  [/^s(ec(ond)?s?)?$/, 1000],
  [/^m(in(ute)?s?)?$/, 60_000],
  [/^h(ours?)?$/, 3_600_000],
  [/^d(ays?)?$/, 86_400_000],
  [/^w(eeks?)?$/, 604_800_000],
  [/^month$/, 2_678_400_000],
] as const;

/** What the local limiter knows of a rule. */
export interface Rule {
  text: string;
  kind: 'window' | 'bucket' | 'slots';
  /** Rules with one identity count in one state. */
  identity: string;
  name: string | null;
  /** What passes at once. */
  capacity: number;
  quota: number;
  periodMs: number;
  /** What every check costs this rule. */
  cost: number | undefined;
  shadow: boolean;
}

/** Throws a TypeError for a text that is surely no rule. The server finds other faults. */
export function looksLikeRules(rules: unknown): void {
  for (const rule of Array.isArray(rules) ? rules : [rules]) {
    if (typeof rule !== 'string' || !SHAPE.test(rule)) {
      throw new TypeError(`the rule is '${rule}', expected such as '5/15m', 'bucket:10/s,burst=20', 'slots:4' or '@policy'`);
    }
  }
}

/** Throws a TypeError for rules that name a policy. */
export function namesNoPolicy(rules: readonly string[]): void {
  const policy = rules.find((rule) => rule.startsWith('@'));
  if (policy) throw new TypeError(`a policy has '${policy}', expected rules: a policy names no other`);
}

/** What the rules of a middleware cannot have, and why. */
export const SLOTS: Unfit = [/^slots:/, 'slots are held, ask for them with hold()'];
export const BANS: Unfit = [/,ban=/, 'a request that does not count would ban all the same, so `count` needs rules without `ban`'];
export type Unfit = readonly [pattern: RegExp, why: string];

/** Throws a TypeError for rules that a middleware cannot have. */
export function fit(rules: readonly string[], unfit: readonly Unfit[]): void {
  for (const [pattern, why] of unfit) {
    const rule = rules.find((text) => pattern.test(text));
    if (rule) throw new TypeError(`the rules have '${rule}', expected others: ${why}`);
  }
}

/** If the rules of a policy turn out unfit, gives back the request and throws the error of `fit`. */
export async function fitOrGiveBack({ rules }: { rules: readonly { rule: string }[] }, unfit: readonly Unfit[], giveBack: () => Promise<unknown>): Promise<void> {
  try {
    fit(rules.map(({ rule }) => rule), unfit);
  } catch (error) {
    await giveBack();
    throw error;
  }
}

/** What a user calls a rule: its name, or else its text. */
export function calledOf(text: string): string {
  return /,name=([^,]+)/.exec(text)?.[1] ?? text;
}

/** Reads a rule. Each of several processes enforces its part of the limit, at least 1. */
export function readRule(text: string, processes: number): Rule {
  const [, algorithm = 'log', limit, count, unit, options = ''] = RULE.exec(text) ?? [];
  const unitMs = UNITS.find(([name]) => name.test(unit ?? ''))?.[1];
  const periodMs = (unitMs ?? 0) * Number(count || 1);
  const given = new Map(options.split(',').map((option) => [option.replace(/=.*/, ''), option.replace(/^.*?=/, '')]));
  const number = (name: string): number | undefined => (given.has(name) ? Number(given.get(name) || NaN) : undefined);
  const [burst, cost] = [number('burst'), number('cost')];
  if (limit === undefined || (algorithm === 'slots') !== (periodMs === 0) || Number.isNaN(burst) || Number.isNaN(cost)) {
    throw new SyntaxError(`rule '${text}' cannot be read`);
  }
  const part = (units: number): number => units && Math.max(1, Math.floor(units / processes));
  const quota = part(Number(limit));
  const name = given.get('name') ?? null;
  const kind = algorithm === 'leaky' ? 'bucket' : algorithm === 'bucket' || algorithm === 'slots' ? algorithm : 'window';
  const most = algorithm === 'leaky' ? Math.min(1 + (number('queue') ?? Infinity), Number(limit)) : (burst ?? Number(limit));
  const capacity = quota && part(most);
  const identity = name === null ? `${algorithm}/${periodMs}` : `${kind} ${name}`;
  return { text, kind, identity, name, capacity, quota, periodMs, cost, shadow: given.has('shadow') };
}

/** What a check costs a rule by its name, else by its text; `undefined` if the rule takes the default cost. */
export function ownCost({ name, cost: own }: Rule, cost: Cost): number | undefined {
  const named = typeof cost === 'object' && !isRange(cost) && name !== null && Object.hasOwn(cost, name);
  return named ? cost[name] : own;
}

/** What a check costs the rules without a cost of their own; of a range, the least. */
export function defaultCost(cost: Cost): number {
  if (typeof cost === 'number') return cost;
  return isRange(cost) ? cost[0] : (cost[''] ?? 1);
}
