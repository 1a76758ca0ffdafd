import { CheckReply, type Reply, type Report, type RuleReport } from './replies.js';
import { type Limit, list, type Rules } from './request.js';

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

interface Denial<Asked, Answer> {
  asked: Asked;
  cost: number;
  since: number;
  until: number;
  answer: Answer;
}

/** The last denial of each key, until its wait is over. All times are milliseconds of one clock that never goes back. */
class Denials<Asked, Answer extends Denied> {
  readonly #size: number;
  readonly #same: (a: Asked, b: Asked) => boolean;
  readonly #age: (answer: Answer, ms: number) => Answer;
  readonly #found = new Map<string, Denial<Asked, Answer>>();

  constructor(size: number, same: (a: Asked, b: Asked) => boolean, age: (answer: Answer, ms: number) => Answer) {
    this.#size = size;
    this.#same = same;
    this.#age = age;
  }

  /** The remembered denial of an equal check, with the wait that is left, or nothing once the wait is over. */
  find(now: number, key: string, asked: Asked, cost: number): Answer | undefined {
    const denial = this.#found.get(key);
    if (!denial || denial.cost !== cost || !this.#same(denial.asked, asked)) return undefined;
    if (now < denial.until) return this.#age(denial.answer, now - denial.since);
    this.#found.delete(key);
    return undefined;
  }

  /** `since` is when the server was asked. It decided after that, so no denial is remembered too long. */
  keep(since: number, key: string, asked: Asked, cost: number, answer: Answer, followsAPlan = false): void {
    const ms = lastsMs(answer, followsAPlan);
    this.#found.delete(key);
    this.#found.set(key, { asked, cost, since, until: since + ms, answer });
    for (const [oldest, { until }] of this.#found) {
      if (this.#found.size <= this.#size && until > since) break;
      this.#found.delete(oldest);
    }
  }

  forget(key: string): void {
    this.#found.delete(key);
  }
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
export function denialsOfChecks(size: number): Denials<Rules, Reply> {
  return new Denials(size, sameRules, aged);
}

/** Denials of checks with reports, each under the key that denied. */
export function denialsOfReports(size: number): Denials<readonly Limit[], Report> {
  const same = (a: readonly Limit[], b: readonly Limit[]): boolean =>
    a.length === b.length && a.every(({ key, rules }, i) => key === b[i]!.key && sameRules(rules, b[i]!.rules));
  return new Denials(size, same, (report, ms) => ({
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

function sameRules(a: Rules, b: Rules): boolean {
  if (a === b) return true;
  const [first, second] = [list(a), list(b)];
  return first.length === second.length && first.every((rule, i) => rule === second[i]);
}

function aged(reply: Reply, ms: number): Reply {
  const { verdict, limit, remaining, waitMs, resetMs } = reply;
  return new CheckReply(verdict, [limit, remaining, later(waitMs, ms), later(resetMs, ms)], 'denial');
}

function times({ waitMs, resetMs }: { waitMs: number; resetMs: number }, ms: number) {
  return { waitMs: later(waitMs, ms), resetMs: later(resetMs, ms) };
}

function later(untilMs: number, ms: number): number {
  return untilMs < 0 ? untilMs : Math.max(0, Math.ceil(untilMs - ms));
}
