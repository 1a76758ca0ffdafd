/** Rules as a text each, `['5/15m', '20/h']`, or a policy, `'@free'`. */
export type Rules = string | readonly string[];

/** A key, and the rules that it must keep to. */
export interface Limit {
  key: string;
  rules: Rules;
}

export interface CheckOptions {
  /** The units that the check consumes: 1 by default. A range `[a, b]` takes as much as passes. */
  cost?: number | readonly [least: number, most: number];
  /** A text for `RL.LOG`, such as who asks. */
  meta?: string;
}

const VERDICTS = ['allowed', 'limited', 'blocked'] as const;

/** `limited`: by a rule. `blocked`: by an operator, or by the `ban=` of a rule. */
export type Verdict = (typeof VERDICTS)[number];

/** What a check replies. `-1` stands for "no limit" and "never", as in the server's own reply. */
export interface Reply {
  verdict: Verdict;
  /** The most that the deciding rule lets pass at once. */
  limit: number;
  /** The units that the deciding rule would still allow now. */
  remaining: number;
  /** Above 0: wait, then ask again (denied) or proceed (allowed by `leaky`). */
  waitMs: number;
  /** The time until nothing counts under the deciding rule. */
  resetMs: number;
  /** What a range of costs was granted. */
  granted?: number;
}

/** One rule of a {@link Report}. */
export interface RuleReport {
  rule: string;
  name: string | null;
  /** The key that the rule belongs to, in a check of several keys. */
  key?: string;
  cost: number;
  denies: boolean;
  /** A rule on trial: it never denies, and clients should not hear of it. */
  shadow: boolean;
  limit: number;
  /** What the rule allows per period. */
  quota: number;
  /** 0: the rule has no period (`slots`). */
  periodMs: number;
  remaining: number;
  waitMs: number;
  nextMs: number;
  resetMs: number;
}

/** What a check with `FULL` replies: the numbers of each rule. */
export interface Report {
  verdict: Verdict;
  waitMs: number;
  /** The key that decides, in a check of several keys. */
  key?: string;
  granted?: number;
  rules: RuleReport[];
}

/**
 * Sends the command `[...head, ...keys, ...tail]`. Client libraries find the node of a cluster by the keys, and add their
 * prefix to them.
 */
export type Send = (head: string[], keys: string[], tail: string[]) => Promise<unknown>;

/** The commands of an application. `ioredis()` and `nodeRedis()` make one of a client. */
export class RateLimiter {
  readonly #send: Send;

  constructor(send: Send) {
    this.#send = send;
  }

  /** Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`. */
  async check(key: string, rules: Rules, options: CheckOptions = {}): Promise<Reply> {
    return reply(await this.#send(['RL.CHECK'], [key], [...words(options), ...list(rules)]));
  }

  /** Decides without consuming: `RL.PEEK`. */
  async peek(key: string, rules: Rules, { cost }: Pick<CheckOptions, 'cost'> = {}): Promise<Reply> {
    return reply(await this.#send(['RL.PEEK'], [key], [...words({ cost }), ...list(rules)]));
  }

  /** Decides over one or several keys, consumes from all or from none, and reports on each rule: `FULL`. */
  async checkAll(limits: readonly Limit[], options: CheckOptions = {}): Promise<Report> {
    const keys = limits.map(({ key }) => key);
    const groups = limits.flatMap(({ rules }, i) => (i === 0 ? list(rules) : ['NEXT', ...list(rules)]));
    const head = keys.length === 1 ? ['RL.CHECK'] : ['RL.MCHECK', String(keys.length)];
    return report(await this.#send(head, keys, [...words(options), 'FULL', ...groups]));
  }

  /** Reports on each rule of a key without consuming. */
  async peekAll(key: string, rules: Rules): Promise<Report> {
    return report(await this.#send(['RL.PEEK'], [key], ['FULL', ...list(rules)]));
  }

  /** Gives units back to the states of some rules, or of all; replies with the most that one of them got. */
  async refund(key: string, units: number, rules: Rules = []): Promise<number> {
    return Number(await this.#send(['RL.REFUND'], [key], [String(units), ...list(rules)]));
  }

  /** Forgets what was consumed. Blocks, exemptions and the history stay. */
  async reset(key: string): Promise<void> {
    await this.#send(['RL.RESET'], [key], []);
  }

  /** Sends any other command whose first argument is its key, such as `RL.SETTLE`. */
  call(command: string, key: string, ...args: (string | number)[]): Promise<unknown> {
    return this.#send([command], [key], args.map(String));
  }
}

function list(rules: Rules): readonly string[] {
  return typeof rules === 'string' ? [rules] : rules;
}

function words({ cost, meta }: { [Name in keyof CheckOptions]: CheckOptions[Name] | undefined }): string[] {
  const found: string[] = [];
  if (cost !== undefined) found.push('COST', typeof cost === 'number' ? String(cost) : cost.join('..'));
  if (meta !== undefined) found.push('META', meta);
  return found;
}

function reply(numbers: unknown): Reply {
  const [verdict, limit, remaining, waitMs, resetMs, granted] = (numbers as unknown[]).map(Number) as Numbers;
  return { verdict: VERDICTS[verdict], limit, remaining, waitMs, resetMs, ...(granted !== undefined && { granted }) };
}

type Numbers = [verdict: 0 | 1 | 2, limit: number, remaining: number, waitMs: number, resetMs: number, granted?: number];

function report(sent: unknown): Report {
  const { verdict, rules, ...rest } = record(sent);
  return { ...rest, verdict: VERDICTS[Number(verdict) as 0 | 1 | 2], rules: (rules as unknown[]).map(ruleReport) } as Report;
}

function ruleReport(sent: unknown): RuleReport {
  const { verdict, shadow, ...rest } = record(sent);
  return { ...rest, denies: verdict !== 0, shadow: shadow !== 0 } as RuleReport;
}

/** A map as the client library hands it over: with RESP2 a flat list of names and values, with RESP3 a Map or an object. */
function record(sent: unknown): Record<string, unknown> {
  const entries =
    sent instanceof Map ? [...sent]
    : Array.isArray(sent) ? Array.from({ length: sent.length / 2 }, (_, i) => [sent[2 * i], sent[2 * i + 1]] as const)
    : Object.entries(sent as object);
  return Object.fromEntries(entries.map(([name, value]) => [camelCase(name), value]));
}

function camelCase(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}
