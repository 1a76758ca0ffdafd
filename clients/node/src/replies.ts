import { inspect } from 'node:util';

const VERDICTS = ['allowed', 'limited', 'blocked'] as const;

/** `limited`: by a rule. `blocked`: by an operator, or by the `ban=` of a rule. */
export type Verdict = (typeof VERDICTS)[number];

/**
 * Who decided: the `server`; the limiter in this process (`local`), or nobody (`outage`), while the server is away; a
 * `denial` that the limiter remembers; or a `lease`.
 */
export type Source = 'server' | 'local' | 'outage' | 'denial' | 'lease';

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
  /** The units that a range of costs was granted. */
  granted?: number;
  source: Source;
  /**
   * Whether this check brought consumption from below a fraction of the limit to at least that: `crossed(0.8)` for a
   * mail at 80 %. `cost` is what the check cost the deciding rule: by default the units granted from a range, else 1.
   *
   * Under one `fixed` rule this is true once a window. Under other rules units come back, or another rule decides: it
   * may be true twice or never. It is true again if the check repeats a hold. Do not ask it of a peek.
   */
  crossed(fraction: number, cost?: number): boolean;
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
  source: Source;
}

/** A reply. It has the field `granted` only if a range was granted. */
export class CheckReply implements Reply {
  declare readonly granted?: number;

  constructor(
    readonly verdict: Verdict, readonly limit: number, readonly remaining: number, readonly waitMs: number, readonly resetMs: number,
    readonly source: Source, granted?: number,
  ) {
    if (granted !== undefined) this.granted = granted;
  }

  crossed(fraction: number, cost = this.granted ?? 1): boolean {
    if (!(typeof fraction === 'number' && fraction > 0 && fraction <= 1)) {
      throw new TypeError(`the fraction is ${fraction}, expected a number above 0 and at most 1`);
    }
    if (this.verdict !== 'allowed' || this.limit <= 0) return false;
    const used = this.limit - this.remaining;
    return (used - cost) / this.limit < fraction && fraction <= used / this.limit;
  }
}

/** A server that answers checks with something else. */
export class UnreadableReply extends Error {
  override readonly name = 'UnreadableReply';

  constructor(reply: unknown) {
    super(`unreadable reply: ${Buffer.from(inspect(reply, { breakLength: Infinity, maxStringLength: 100 })).subarray(0, 100)}`);
  }
}

/** The server's five integers, or six after a range of costs. */
export function readReply(sent: unknown, ofRange: boolean): Reply {
  if (!Array.isArray(sent) || sent.length !== (ofRange ? 6 : 5)) throw new UnreadableReply(sent);
  const whole = (at: number) => wholeOf(sent[at], sent);
  return new CheckReply(verdictOf(sent[0], sent), whole(1), whole(2), whole(3), whole(4), 'server', ofRange ? whole(5) : undefined);
}

/** The server's reply to `FULL`. */
export function readReport(sent: unknown): Report {
  const { verdict, wait_ms, granted, key, rules } = record(sent, sent);
  if (!Array.isArray(rules)) throw new UnreadableReply(sent);
  return {
    verdict: verdictOf(verdict, sent),
    waitMs: wholeOf(wait_ms, sent),
    ...(typeof key === 'string' && { key }),
    ...(granted !== undefined && { granted: wholeOf(granted, sent) }),
    rules: rules.map((rule) => readRuleReport(rule, sent)),
    source: 'server',
  };
}

/** A reply of one whole number. */
export function readNumber(sent: unknown): number {
  return wholeOf(sent, sent);
}

/** A reply that says whether something was there. */
export function readFlag(sent: unknown): boolean {
  const number = wholeOf(sent, sent);
  if (number !== 0 && number !== 1) throw new UnreadableReply(sent);
  return number === 1;
}

/** The rule that decides: if the check was denied, the one with the longest wait, otherwise the one with the least left for its cost. */
export function deciding({ verdict, rules }: Report): RuleReport | undefined {
  const never = (ms: number): number => (ms < 0 ? Infinity : ms);
  const denied = verdict !== 'allowed';
  const [first, ...others] = rules.filter(({ shadow, denies }) => !shadow && (denies || !denied));
  const worse = (a: RuleReport, b: RuleReport): boolean =>
    denied ? never(a.waitMs) > never(b.waitMs) : a.remaining * b.cost < b.remaining * a.cost;
  return first && others.reduce((most, rule) => (worse(rule, most) ? rule : most), first);
}

/** The short reply that a report amounts to. */
export function shorten(report: Report): Reply {
  const { limit = -1, remaining = -1, resetMs = report.waitMs } = deciding(report) ?? {};
  const { verdict, waitMs, granted, source } = report;
  const none = verdict !== 'allowed' && limit === -1;
  return new CheckReply(verdict, none ? 0 : limit, none ? 0 : remaining, waitMs, resetMs, source, granted);
}

const TEXTS = new Set(['rule', 'name', 'key']);
const NUMBERS = ['cost', 'verdict', 'shadow', 'limit', 'quota', 'period_ms', 'remaining', 'wait_ms', 'next_ms', 'reset_ms'];

function readRuleReport(rule: unknown, sent: unknown): RuleReport {
  const found = record(rule, sent);
  if (typeof found.rule !== 'string' || NUMBERS.some((name) => !(name in found))) throw new UnreadableReply(sent);
  const read = Object.entries(found).map(([name, value]) => [camelCase(name), TEXTS.has(name) ? value : wholeOf(value, sent)]);
  const { verdict, shadow, ...rest } = Object.fromEntries(read);
  return { ...rest, denies: verdict !== 0, shadow: shadow !== 0 };
}

/** A whole number, or its decimal text: some clients return all numbers as texts. */
function wholeOf(value: unknown, sent: unknown): number {
  if (Number.isSafeInteger(value)) return value as number;
  if (typeof value === 'string' && /^-?\d{1,15}$/.test(value)) return Number(value);
  throw new UnreadableReply(sent);
}

function verdictOf(value: unknown, sent: unknown): Verdict {
  const verdict = VERDICTS[wholeOf(value, sent)];
  if (!verdict) throw new UnreadableReply(sent);
  return verdict;
}

/** A map as the client library hands it over: with RESP2 a flat list of names and values, with RESP3 a Map or an object. */
function record(map: unknown, sent: unknown): Record<string, unknown> {
  if (map instanceof Map) return Object.fromEntries(map);
  if (Array.isArray(map)) return Object.fromEntries(Array.from({ length: map.length / 2 }, (_, i) => [map[2 * i], map[2 * i + 1]]));
  if (typeof map === 'object' && map !== null) return map as Record<string, unknown>;
  throw new UnreadableReply(sent);
}

function camelCase(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}
