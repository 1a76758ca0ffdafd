// The engine for servers that load no module: `ratelimit.lua`. It answers checks, peeks, refunds and resets with the
// same integers as the module, and stores its state under the key with `:script` appended.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

import type { Command } from './library.js';
import { codeOf } from './outage.js';
import type { Reply, Report, RuleReport } from './replies.js';
import type { Cost, Read } from './request.js';
import { defaultCost, ownCost, readRule, type Rule } from './rule.js';

/** Who decides. */
export type Engine = 'module' | 'script';

/** The commands that the script answers. */
const COMMAND = /^RL\.(CHECK|PEEK|REFUND|RESET)$/i;
const OPTION = /^(FULL|HOLD|META)$/i;

interface Script {
  text: string;
  digest: string;
}

let script: Script | undefined;

/** The script, read when a limiter first needs it. */
export function loaded(): Script {
  if (!script) {
    const text = readFileSync(new URL('./ratelimit.lua', import.meta.url), 'utf8');
    script = { text, digest: createHash('sha1').update(text).digest('hex') };
  }
  return script;
}

export function needsModule(what: string): TypeError {
  return new TypeError(`${what} needs the module, but the engine is 'script'`);
}

/** The command that asks the script instead of the module. What the script cannot answer is an error, and nothing is sent. */
export function evalsha([[command], [key], tail]: Command): Command {
  const [, name] = COMMAND.exec(command!) ?? [];
  if (!name) throw needsModule(command!);
  for (const word of tail) scriptKnows(word);
  const own = typeof key === 'string' ? `${key}:script` : Buffer.concat([key!, Buffer.from(':script')]);
  return [['EVALSHA', loaded().digest, '1'], [own], [name.toUpperCase(), ...tail]];
}

/** The command for a server that has forgotten the script. */
export function evaluate([, keys, tail]: Command): Command {
  return [['EVAL', loaded().text, '1'], keys, tail];
}

export function hasForgotten(error: unknown): boolean {
  return error instanceof Error && codeOf(error) === 'NOSCRIPT';
}

/** Throws for a rule or an option that the script does not have. */
export function scriptKnows(word: string): void {
  if (OPTION.test(word)) throw needsModule(word.toUpperCase());
  if (word.startsWith('@')) throw needsModule(`the policy '${word}'`);
  if (/^\d+\.\.\d+$/.test(word)) throw needsModule('a range of costs');
  const part = word.startsWith('slots:') ? 'slots' : /,(ban|keep)=/.exec(word)?.[1];
  if (part) throw needsModule(`${part} in the rule '${word}'`);
}

/**
 * The report on the rule that decides for a key. The five integers identify it only by its limit. If several rules share
 * that limit, this takes the one with the shortest period that is not below the reset. `nextMs` is an upper bound: more
 * units may be back sooner.
 */
export function reportOf({ verdict, waitMs, resetMs, limit, remaining, source }: Reply, { rules }: Read, cost: Cost): Report {
  const denies = verdict !== 'allowed';
  const order = (a: Rule, b: Rule): number => Number(a.periodMs < resetMs) - Number(b.periodMs < resetMs) || a.periodMs - b.periodMs;
  const [rule] = read(rules).filter((rule) => !rule.shadow && capacityOf(rule) === limit).sort(order);
  const [nextMs, ownWaitMs] = [denies && waitMs >= 0 ? waitMs : resetMs, denies ? waitMs : 0];
  const report = ({ text, name, quota, periodMs }: Rule, units: number): RuleReport =>
    ({ rule: text, name, cost: units, denies, shadow: false, limit, quota, periodMs, remaining, waitMs: ownWaitMs, nextMs, resetMs });
  return { verdict, waitMs, rules: rule ? [report(rule, costOf(rule, cost))] : [], source };
}

/** Maps each cost to the rules that a check has charged that cost. */
export function charges(rules: readonly string[], cost: Cost): Map<number, string[]> {
  const found = new Map<number, string[]>();
  for (const rule of read(rules)) {
    const units = costOf(rule, cost);
    if (units > 0) found.set(units, [...(found.get(units) ?? []), rule.text]);
  }
  return found;
}

function read(rules: readonly string[]): Rule[] {
  return rules.map((rule) => readRule(rule, 1));
}

function capacityOf({ text, quota, capacity }: Rule): number {
  if (quota === 0) return 0;
  return text.startsWith('leaky:') ? 1 + Number(/,queue=(\d+)/.exec(text)?.[1] ?? quota) : capacity;
}

function costOf(rule: Rule, cost: Cost): number {
  return ownCost(rule, cost) ?? defaultCost(cost);
}
