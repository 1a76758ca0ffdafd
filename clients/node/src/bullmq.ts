// Limits for the jobs of BullMQ across all workers, and slots that they hold while they run:
//
//     new Worker('mails', limited(send, { limiter, rules: ['100/m', 'slots:4'], key: ({ data }) => `tenant:${data.tenant}` }), { connection })
//
// Before a job runs, its worker takes a hold on the key. A denied job moves to the delayed ones, and no attempt is counted.
//
// If all denied jobs of a key came back after their own waits, all but one would come in vain. So a rule `leaky` on the key gives them
// turns, at the rate of the rule that denies; slots come back at the rate at which jobs end. A job that comes in vain all the same waits
// for the next unit, and after three such waits takes another turn.

import { DelayedError, type Job, type Processor } from 'bullmq';

import { Denied, Saturated } from './errors.js';
import type { Hold } from './hold.js';
import { RateLimiter } from './limiter.js';
import { type Form, type Forms, inOrder, mustBe, SPAN } from './options.js';
import { isOutage } from './outage.js';
import type { RuleReport } from './replies.js';
import { COST, type Cost, list, type Rules } from './request.js';
import { fit, looksLikeRules, type Unfit } from './rule.js';

/** A value, or a function that finds it for a job. */
type Of<J, Value> = Value | ((job: J) => Value | Promise<Value>);

export interface LimitedOptions<J> {
  limiter: RateLimiter;
  rules: Of<J, Rules>;
  key: Of<J, string>;
  /** What a job costs: 1 by default. */
  cost?: Of<J, Cost>;
  /** A dead worker's slots are free again after this time: 30 s by default. */
  ttlMs?: number;
}

const orFunction = ([expected, fits]: Form): Form => [`${expected} or a function`, (value) => typeof value === 'function' || fits(value)];
const LIMITER: Form = ['a RateLimiter', (value) => value instanceof RateLimiter];
const KEY = orFunction(['a text', (value) => typeof value === 'string' && value !== '']);
const FORMS: Forms<LimitedOptions<never>> = { limiter: LIMITER, rules: ['rules', () => true], key: KEY, cost: orFunction(COST), ttlMs: SPAN };
const LEAKY: Unfit = [/^leaky:/, 'a job would wait for its turn in a worker'];
/** For how long a job is supposed to run before one has ended. */
const RUN_MS = 100;
/** The first pause of a job while the server gives no decision. Then the pauses double, up to half a minute. */
const OUTAGE_MS = 1000;
/** A denied job asks again after this time at the latest, because its limit may have been raised meanwhile. */
const LONGEST_MS = 3_600_000;

/**
 * A processor that limits its jobs. Its signal aborts also when its hold has ended too early. A denial that no wait ends, as of a cost
 * above the limit, fails the job with {@link Denied}.
 */
export function limited<Data = any, Result = any, Name extends string = string>(
  processor: Processor<Data, Result, Name>,
  options: LimitedOptions<Job<Data, Result, Name>>,
): Processor<Data, Result, Name> {
  const line = ['flow', 'weight', 'priority'].find((name) => name in options);
  if (line) throw new TypeError(`limited: '${line}' is given, expected none: a delayed job has no place in a line`);
  inOrder('limited', options, FORMS);
  const { limiter, rules, key, cost = 1, ttlMs = 30_000 } = options;
  mustBe('limited', 'limiter', limiter, LIMITER);
  mustBe('limited', 'key', key, KEY);
  if (typeof rules !== 'function') tested(rules);
  let runMs = RUN_MS;
  let ended = 0;
  return async (job, token, signal) => {
    const its = { key: await of(key, job), rules: tested(await of(rules, job)), cost: await of(cost, job) };
    let hold: Hold;
    try {
      hold = await limiter.hold(its.key, its.rules, { cost: its.cost, ttlMs });
    } catch (error) {
      const denials = Math.max(0, job.attemptsStarted - job.attemptsMade - 1);
      const pauseMs = isUndecided(error) ? OUTAGE_MS * 2 ** Math.min(denials, 5) : await deniedMs(limiter, its, error, denials, runMs);
      await job.moveToDelayed(Date.now() + Math.ceil(Math.min(pauseMs, LONGEST_MS)), token);
      throw new DelayedError();
    }
    const began = performance.now();
    try {
      return await processor(job, token, signal ? AbortSignal.any([signal, hold.lost]) : hold.lost);
    } finally {
      ended += 1;
      runMs += (performance.now() - began - runMs) / Math.min(ended, 8);
      await hold[Symbol.asyncDispose]();
    }
  };
}

function of<J, Value>(given: Of<J, Value>, job: J): Value | Promise<Value> {
  return typeof given === 'function' ? (given as (job: J) => Value | Promise<Value>)(job) : given;
}

function tested(rules: Rules): Rules {
  looksLikeRules(rules);
  fit(list(rules), [LEAKY]);
  return rules;
}

function isUndecided(error: unknown): boolean {
  return error instanceof Saturated || (error instanceof Denied ? error.reply.source === 'outage' : isOutage(error));
}

async function deniedMs(limiter: RateLimiter, its: { key: string; rules: Rules; cost: Cost }, error: unknown, denials: number, runMs: number): Promise<number> {
  if (!(error instanceof Denied) || error.reply.waitMs < 0) throw error;
  try {
    const { verdict, rules } = await limiter.peekAll(its.key, its.rules, { cost: its.cost });
    const denying = rules.filter(({ denies, shadow }) => denies && !shadow);
    if (denying.length === 0) return verdict === 'allowed' ? 0 : error.reply.waitMs; // units came back meanwhile; a block or a pause
    const leastMs = Math.max(...denying.map(({ periodMs, waitMs }) => (periodMs ? waitMs : Math.min(waitMs, runMs))));
    if (denials % 4 > 0) return leastMs;
    const gapMs = ({ periodMs, cost, quota }: RuleReport) => ((periodMs || runMs) * cost) / quota;
    const slowest = denying.reduce((one, other) => (gapMs(other) > gapMs(one) ? other : one));
    // Some turns come too late for their units, so there are a tenth more turns than units.
    const turns = `leaky:${slowest.quota}/${Math.ceil((slowest.periodMs || runMs) * 0.9)}ms,queue=1000000,name=queue-turns`;
    const { waitMs } = await limiter.check(its.key, turns, { cost: slowest.cost });
    return Math.max(leastMs, slowest.periodMs ? waitMs : Math.min(waitMs, slowest.waitMs)); // a slot lapses at the latest
  } catch (failed) {
    if (!isUndecided(failed)) throw failed;
    return error.reply.waitMs;
  }
}
