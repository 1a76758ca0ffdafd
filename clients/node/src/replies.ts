const VERDICTS = ['allowed', 'limited', 'blocked'] as const;

/** `limited`: by a rule. `blocked`: by an operator, or by the `ban=` of a rule. */
export type Verdict = (typeof VERDICTS)[number];

/**
 * Who decided: the `server`; the limiter in this process (`local`), or nobody (`outage`), while the server is away; or a
 * `denial` that the limiter remembers.
 */
export type Source = 'server' | 'local' | 'outage' | 'denial';

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
  readonly verdict: Verdict;
  readonly limit: number;
  readonly remaining: number;
  readonly waitMs: number;
  readonly resetMs: number;
  readonly source: Source;
  declare readonly granted?: number;

  constructor(verdict: Verdict, [limit, remaining, waitMs, resetMs]: Counted, source: Source, granted?: number) {
    this.verdict = verdict;
    this.limit = limit;
    this.remaining = remaining;
    this.waitMs = waitMs;
    this.resetMs = resetMs;
    this.source = source;
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

type Counted = [limit: number, remaining: number, waitMs: number, resetMs: number];

/** The server's five integers, or six. */
export function readReply(sent: unknown): Reply {
  const [verdict, limit, remaining, waitMs, resetMs, granted] = (sent as unknown[]).map(Number) as Numbers;
  return new CheckReply(VERDICTS[verdict], [limit, remaining, waitMs, resetMs], 'server', granted);
}

type Numbers = [verdict: 0 | 1 | 2, limit: number, remaining: number, waitMs: number, resetMs: number, granted?: number];

/** The server's reply to `FULL`. */
export function readReport(sent: unknown): Report {
  const { verdict, rules, chosen: _, ...rest } = record(sent);
  const read = (rules as unknown[]).map(readRuleReport);
  return { ...rest, verdict: VERDICTS[Number(verdict) as 0 | 1 | 2], rules: read, source: 'server' } as Report;
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
  return new CheckReply(verdict, none ? [0, 0, waitMs, resetMs] : [limit, remaining, waitMs, resetMs], source, granted);
}

function readRuleReport(sent: unknown): RuleReport {
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
