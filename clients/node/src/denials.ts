import { CheckReply, type Reply, type Report, type RuleReport } from './replies.js';
import { nameOf } from './library.js';
import type { Cost, Read } from './request.js';

/**
 * How long to remember a denial that may end at any time: a block, a pause, a wait of -1, or one under a plan, which the
 * customer may change.
 */
const SHORT_MS = 1000;
/** Rules whose denials are not remembered: they may end early, or the server must count them. */
const NEVER = /^(slots:|@)|,(count=all|ban=)/;

/** A reply, or a report. */
interface Denied {
  verdict: string;
  waitMs: number;
  limit?: number;
  rules?: readonly RuleReport[];
}

interface Denial<Answer> {
  key: string;
  since: number;
  until: number;
  answer: Answer;
}

/** Denials, each until its wait is over, by what was asked. All times are milliseconds of one clock that never goes back. */
class Denials<Answer extends Denied> {
  readonly #size: number;
  readonly #age: (answer: Answer, ms: number) => Answer;
  readonly #found = new Map<string, Denial<Answer>>();
  /** What was asked of each key that denies. */
  readonly #ofKey = new Map<string, Set<string>>();

  constructor(size: number, age: (answer: Answer, ms: number) => Answer) {
    this.#size = size;
    this.#age = age;
  }

  /** The remembered denial of an equal check, with the wait that is left, or nothing once the wait is over. */
  find(now: number, what: string): Answer | undefined {
    const denial = this.#found.get(what);
    if (!denial) return undefined;
    if (now < denial.until) return this.#age(denial.answer, now - denial.since);
    this.#drop(what);
    return undefined;
  }

  /** `key` denies. `since` is when the server was asked. It decided after that, so no denial is remembered too long. */
  keep(since: number, what: string, key: string, answer: Answer, followsAPlan = false): void {
    this.#drop(what);
    this.#found.set(what, { key, since, until: since + lastsMs(answer, followsAPlan), answer });
    this.#ofKey.set(key, (this.#ofKey.get(key) ?? new Set()).add(what));
    for (const [oldest, { until }] of this.#found) {
      if (this.#found.size <= this.#size && until > since) break;
      this.#drop(oldest);
    }
  }

  forget(key: string): void {
    for (const what of this.#ofKey.get(key) ?? []) this.#drop(what);
  }

  #drop(what: string): void {
    const { key } = this.#found.get(what) ?? {};
    if (key === undefined) return;
    this.#found.delete(what);
    const others = this.#ofKey.get(key);
    others?.delete(what);
    if (others?.size === 0) this.#ofKey.delete(key);
  }
}

/** What a check asks, as a text: equal checks have equal texts. */
export function asked(limits: readonly Read[], cost: Cost): string {
  let text = typeof cost === 'number' ? `${cost}` : JSON.stringify(cost);
  for (const { key, rules } of limits) text += ` ${nameOf(key).length} ${nameOf(key)} ${rules.join(' ')}`;
  return text;
}

/** For how long a denial is remembered. */
export function lastsMs(answer: Denied, followsAPlan: boolean): number {
  const { verdict, waitMs } = answer;
  if (verdict === 'limited' && waitMs >= 0 && !followsAPlan && byRule(answer)) return waitMs;
  return Math.min(SHORT_MS, waitMs < 0 ? SHORT_MS : waitMs);
}

/** Whether a rule, not a pause, sets `waitMs`. */
function byRule({ limit, rules = [], waitMs }: Denied): boolean {
  return limit === undefined ? rules.some((rule) => rule.denies && rule.waitMs === waitMs) : limit > 0;
}

/** Denials of one key, with short replies. */
export function denialsOfChecks(size: number): Denials<Reply> {
  return new Denials(size, aged);
}

/** Denials of checks with reports. */
export function denialsOfReports(size: number): Denials<Report> {
  return new Denials(size, (report, ms) => ({
    ...report,
    waitMs: later(report.waitMs, ms),
    rules: report.rules.map((rule) => ({ ...rule, ...times(rule, ms), nextMs: later(rule.nextMs, ms) })),
    source: 'denial',
  }));
}

/** Whether a denial by these rules may be remembered. */
export function lasts(rules: readonly string[]): boolean {
  return !rules.some((rule) => NEVER.test(rule));
}

function aged(reply: Reply, ms: number): Reply {
  const { verdict, limit, remaining, waitMs, resetMs, granted } = reply;
  return new CheckReply(verdict, limit, remaining, later(waitMs, ms), later(resetMs, ms), 'denial', granted);
}

function times({ waitMs, resetMs }: { waitMs: number; resetMs: number }, ms: number) {
  return { waitMs: later(waitMs, ms), resetMs: later(resetMs, ms) };
}

function later(untilMs: number, ms: number): number {
  return untilMs < 0 ? untilMs : Math.max(0, Math.ceil(untilMs - ms));
}
