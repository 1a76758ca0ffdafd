import { type Cost, isRange, list, type Rules } from './request.js';

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
  kind: 'window' | 'bucket' | 'leaky' | 'slots';
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
export function namesNoPolicy(rules: Rules): void {
  const policy = list(rules).find((rule) => rule.startsWith('@'));
  if (policy) throw new TypeError(`a policy has '${policy}', expected rules: a policy names no other`);
}

/** Throws a TypeError for slots, which only the application's own hold can free: a crash would keep a slot for an hour. */
export function noSlots(rules: Rules): void {
  const slots = list(rules).find((rule) => rule.startsWith('slots:'));
  if (slots) throw new TypeError(`the rules have '${slots}', expected others: slots are held, ask for them with hold()`);
}

/** If the rules of a policy turn out to have slots, gives back the request and throws the error of `noSlots`. */
export async function withoutSlots({ rules }: { rules: readonly { rule: string }[] }, giveBack: () => Promise<unknown>): Promise<void> {
  try {
    noSlots(rules.map(({ rule }) => rule));
  } catch (error) {
    await giveBack();
    throw error;
  }
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
  const kind = algorithm === 'bucket' || algorithm === 'leaky' || algorithm === 'slots' ? algorithm : 'window';
  const capacity = kind === 'leaky' ? Math.min(1, quota) : quota && part(burst ?? Number(limit));
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
