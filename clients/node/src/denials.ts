import { nameOf } from './library.js';
import { CheckReply, type Reply, type Report, type RuleReport } from './replies.js';
import { type Cost, followAPlan, type Read } from './request.js';

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

interface Denial {
  key: string;
  since: number;
  until: number;
  answer: Reply | Report;
}

/** Denials, each until its wait is over, by what was asked. */
export class Denials {
  readonly #size: number;
  readonly #found = new Map<string, Denial>();
  /** What was asked of each key that denies. */
  readonly #ofKey = new Map<string, Set<string>>();

  constructor(size: number) {
    this.#size = size;
  }

  /** Answers an equal check with the denial of an earlier one, or asks. `shape` tells replies from reports. */
  async answer<Answer extends Reply | Report>(shape: string, limits: readonly Read[], cost: Cost, ask: () => Promise<Answer>): Promise<Answer> {
    const now = performance.now(); // the server decides after that, so no denial is remembered too long
    const what = asked(shape, limits, cost);
    const denial = this.#found.get(what);
    if (denial && now < denial.until) return aged(denial.answer, now - denial.since) as Answer;
    this.#drop(what);
    const answer = await ask();
    if (answer.verdict === 'allowed' || answer.source !== 'server') return answer;
    const given = limits.flatMap(({ rules }) => rules);
    const rules = 'rules' in answer ? [...answer.rules.map(({ rule }) => rule), ...given.filter((text) => !text.startsWith('@'))] : given;
    const key = ('key' in answer && answer.key) || nameOf(limits[0]!.key);
    if (!rules.some((rule) => NEVER.test(rule))) this.#keep(what, { key, since: now, until: now + lastsMs(answer, followAPlan(given)), answer });
    return answer;
  }

  #keep(what: string, denial: Denial): void {
    this.#drop(what);
    this.#found.set(what, denial);
    this.#ofKey.set(denial.key, (this.#ofKey.get(denial.key) ?? new Set()).add(what));
    for (const [oldest, { until }] of this.#found) {
      if (this.#found.size <= this.#size && until > denial.since) break;
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
function asked(shape: string, limits: readonly Read[], cost: Cost): string {
  let text = `${shape} ${typeof cost === 'number' ? cost : JSON.stringify(cost)}`;
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

function aged(answer: Reply | Report, ms: number): Reply | Report {
  const waitMs = later(answer.waitMs, ms);
  if (!('rules' in answer)) return new CheckReply(answer.verdict, answer.limit, answer.remaining, waitMs, later(answer.resetMs, ms), 'denial', answer.granted);
  const rules = answer.rules.map((rule) => ({ ...rule, waitMs: later(rule.waitMs, ms), nextMs: later(rule.nextMs, ms), resetMs: later(rule.resetMs, ms) }));
  return { ...answer, waitMs, rules, source: 'denial' };
}

function later(untilMs: number, ms: number): number {
  return untilMs < 0 ? untilMs : Math.max(0, Math.ceil(untilMs - ms));
}
