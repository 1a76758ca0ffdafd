import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import { Asking, type AskingOptions } from './asking.js';
import { asked, denialsOfChecks, denialsOfReports, lasts } from './denials.js';
import { Denied, Hold, type Keeper, SETTLE, type SettleOptions } from './hold.js';
import { LocalLimiter, type LocalOptions } from './local.js';
import { type NoticeOptions, Notices } from './notices.js';
import { CALLBACK, FLAG, type Form, type Forms, inOrder, integer, oneOf, SPAN, TEXT, TIME, TIME_OR_0 } from './options.js';
import { ignoreOutage, isOutage, isUnblocked, isUndecided, kindOf } from './outage.js';
import { readReply, readReport, type Reply, type Report, shorten } from './replies.js';
import { CHECK, type CheckOptions, COST, type Cost, costsApart, followAPlan, groups, type HoldOptions, isRange, keyOf, type Limit, list, type Rules, TURN, type Turn, UNITS, words } from './request.js';
import { receipt, whereRoom } from './room.js';
import { looksLikeRules, namesNoPolicy, noSlots } from './rule.js';
import { charges, needsModule, reportOf, scriptKnows } from './script.js';
import type { Command, Server } from './server.js';
import { type AnswerHeaders, fieldsOf, pauseMs, unitsOf } from './upstream.js';
import { WaitingConnections } from './waiting.js';

export interface LimiterOptions extends LocalOptions, AskingOptions, NoticeOptions {
  /**
   * What a check does if the server gives no decision: it throws the error (`raise`, the default), lets the request pass (`allow`),
   * denies it for a second (`deny`), or decides in this process (`local`). An error of a wrong request is always thrown.
   */
  outage?: 'raise' | 'allow' | 'deny' | 'local';
  /**
   * Checks several keys one after the other. If a later key denies, gives back the charges of the earlier ones; until then other
   * checks see them. For clusters, where keys in different slots cannot be decided at once.
   */
  separately?: boolean;
  /**
   * How many denials to remember and answer in this process until their wait is over: none by default. Until then the limiter
   * does not see that an operator unblocked a key, or that another process refunded units or raised a limit. The server does not
   * count those denials.
   */
  rememberDenials?: number;
}

const FORMS: Forms<LimiterOptions> = {
  outage: oneOf('raise', 'allow', 'deny', 'local'),
  timeoutMs: TIME,
  queueTimeoutMs: TIME_OR_0,
  concurrency: integer(1),
  onOutage: CALLBACK,
  onMisconfigured: CALLBACK,
  separately: FLAG,
  rememberDenials: integer(0),
  engine: oneOf('module', 'script'),
  processes: integer(1),
  policies: ['an object with the rules of each policy', (value) => typeof value === 'object' && value !== null],
};

export interface TakeOptions extends Pick<CheckOptions, 'cost' | 'meta'>, Turn {
  /** How long the hold lives if this process dies; until then it is renewed after each third of that time. */
  ttlMs: number;
  /** Whether the whole cost is given back if the hold ends unsettled. */
  refund?: boolean;
  /** New for each request: a random one by default. */
  id?: string;
  /** The longest time to wait in line. Without it, a hold is denied at once. */
  waitMs?: number;
  /** Aborting it leaves the line. */
  signal?: AbortSignal;
}

export interface WaitOptions extends CheckOptions, Turn {
  /** Aborting it leaves the line. */
  signal?: AbortSignal;
}

export interface AnyOptions extends Pick<CheckOptions, 'cost' | 'meta'> {
  /** Takes the key that has the most left afterwards. */
  most?: boolean;
}

const SIGNAL: Form = ['an AbortSignal', (value) => typeof (value as AbortSignal | null)?.aborted === 'boolean'];
const PEEK: Forms<Pick<CheckOptions, 'cost'>> = { cost: COST };
const ANY: Forms<AnyOptions> = { cost: COST, meta: TEXT, most: FLAG };
const WAIT: Forms<WaitOptions> = { ...CHECK, ...TURN, signal: SIGNAL };
const TAKE: Forms<TakeOptions> = { cost: COST, meta: TEXT, ...TURN, ttlMs: SPAN, refund: FLAG, id: TEXT, waitMs: TIME_OR_0, signal: SIGNAL };

/** A wait's reply comes at most this long after its deadline. */
const LATE_MS = 1000;
/** The length of the hold that lets `separately` give back the charge of a key. */
const APART_MS = 10_000;
/** The delays before each try to give back a cancelled hold: the command that takes it may still be on its way. */
const CANCEL_MS = [0, 100, 1000];
/** The pause between tries to give back a hold while the server is away, and how long to try. */
const AGAIN_MS = 1000;
const LONGEST_MS = 60_000;
const NONE: CheckOptions = {};

/** The commands of an application. `ioredis()`, `iovalkey()` and `nodeRedis()` make a `RateLimiter` from a client. */
export class RateLimiter {
  readonly #asking: Asking;
  readonly #waiting: WaitingConnections;
  readonly #notices: Notices;
  readonly #local: LocalLimiter;
  readonly #options: LimiterOptions;
  readonly #denials: ReturnType<typeof denialsOfChecks> | undefined;
  readonly #reports: ReturnType<typeof denialsOfReports> | undefined;

  constructor(server: Server, options: LimiterOptions = {}) {
    inOrder('limiter', options, FORMS);
    for (const rules of Object.values(options.policies ?? {})) {
      looksLikeRules(rules);
      namesNoPolicy(rules);
    }
    this.#notices = new Notices(options);
    this.#asking = new Asking(server, this.#notices, options);
    this.#waiting = new WaitingConnections(server);
    this.#local = new LocalLimiter(options);
    this.#options = options;
    if (options.rememberDenials) {
      this.#denials = denialsOfChecks(options.rememberDenials);
      this.#reports = denialsOfReports(options.rememberDenials);
    }
  }

  /** Whether the limiter has stopped asking the server. */
  get away(): boolean {
    return this.#asking.away;
  }

  /** How many requests got no decision from the server. */
  get outages(): number {
    return this.#notices.answered;
  }

  /** Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`. */
  async check(key: string, rules: Rules, options: CheckOptions = NONE): Promise<Reply> {
    key = keyOf(key);
    inOrder('check', options, CHECK);
    const { cost = 1, hold } = options;
    const denials = remembers(hold) ? this.#denials : undefined;
    const now = denials ? performance.now() : 0;
    const what = denials ? asked([{ key, rules }], cost) : '';
    const denial = denials?.find(now, what);
    if (denial) return denial;
    const reply = await this.#reply('RL.CHECK', key, rules, options);
    if (denials && reply.verdict !== 'allowed' && reply.source === 'server' && lasts(list(rules))) {
      denials.keep(now, what, key, reply);
    }
    return reply;
  }

  /** Decides without consuming: `RL.PEEK`. */
  async peek(key: string, rules: Rules, options: Pick<CheckOptions, 'cost'> = NONE): Promise<Reply> {
    key = keyOf(key);
    inOrder('peek', options, PEEK);
    const { cost = 1 } = options;
    return this.#reply('RL.PEEK', key, rules, { cost });
  }

  /** Decides on one or several keys, consumes from all or from none, and reports on each rule: `FULL`. */
  async checkAll(limits: readonly Limit[], options: CheckOptions = NONE): Promise<Report> {
    inOrder('checkAll', options, CHECK);
    const some = withRules(limits);
    if (some.length === 0) return { ...PASSED, source: 'local' };
    const { cost = 1, hold } = options;
    const denials = remembers(hold) ? this.#reports : undefined;
    const now = performance.now();
    const what = denials ? asked(some, cost) : '';
    const denial = denials?.find(now, what);
    if (denial) return denial;
    const apart = this.#options.separately && some.length > 1;
    const ask = () =>
      this.#byScript ? this.#checkByScript(some, options)
      : apart ? this.#checkEach(some, options)
      : this.#checkTogether(some, options);
    const report = await this.#orWithout(ask, (error) => this.#without(error, some, options));
    const shown = this.#byScript ? some.flatMap(({ rules }) => list(rules)) : report.rules.map(({ rule }) => rule);
    if (denials && report.verdict !== 'allowed' && report.source === 'server' && lasts(shown)) {
      const plans = some.some(({ rules }) => followAPlan(rules));
      denials.keep(now, what, report.key ?? some[0]!.key, report, plans);
    }
    return report;
  }

  /**
   * Consumes from the first key that lets the request pass, or with `most` from the one that has the most left
   * afterwards, and from no other: `ANY`. The report has that key, or after a denial the key with the shortest wait.
   * Without the server the first key decides.
   */
  async checkAny(limits: readonly Limit[], given: AnyOptions = NONE): Promise<Report> {
    inOrder('checkAny', given, ANY);
    const { most = false, ...options } = given;
    if (limits.length === 0) throw new TypeError('a pool has no key, expected at least one');
    const some = withRules(limits);
    const [first] = some;
    if (!first) return { ...PASSED, source: 'local' };
    const keys = some.map(({ key }) => key);
    const rest = ['ANY', ...(most ? ['MOST'] : []), ...words(options), 'FULL', ...groups(some)];
    const ask = async () => readReport(await this.#asking.ask([['RL.MCHECK', String(keys.length)], keys, rest]));
    return this.#orWithout(ask, (error) => {
      const report = this.#without(error, [first], options);
      return { ...report, key: first.key, rules: report.rules.map((rule) => ({ ...rule, key: first.key })) };
    });
  }

  /** Reports on each rule of a key without consuming. */
  async peekAll(key: string, rules: Rules): Promise<Report> {
    key = keyOf(key);
    if (list(rules).length === 0) return { ...PASSED, source: 'local' };
    const ask = async () => readReport(await this.#asking.ask([['RL.PEEK'], [key], ['FULL', ...list(rules)]]));
    return this.#orWithout(ask, (error) => this.#without(error, [{ key, rules }], NONE, true));
  }

  /**
   * Waits in line until the request passes, for at most `timeoutMs`: `RL.WAIT`, on a connection for this call. While the server is
   * away nobody waits: the reply is that of `check`.
   */
  async wait(key: string, rules: Rules, timeoutMs: number, given: WaitOptions = NONE): Promise<Reply> {
    key = keyOf(key);
    inOrder('wait', given, WAIT);
    inOrder('wait', { timeoutMs }, { timeoutMs: TIME_OR_0 });
    const { signal, ...options } = given;
    this.needModule('wait');
    if (list(rules).length === 0) return shorten({ ...PASSED, source: 'local' });
    signal?.throwIfAborted();
    const until = performance.now() + timeoutMs;
    const send = async (leftMs: number): Promise<unknown> => {
      const command: Command = [['RL.WAIT'], [key], [String(Math.ceil(leftMs)), ...words(options), ...list(rules)]];
      try {
        return await this.#waiting.send(command, this.#asking.timeoutMs, leftMs + LATE_MS, signal);
      } catch (error) {
        const nowLeftMs = until - performance.now();
        if (!isUnblocked(error) || nowLeftMs <= 0) throw error;
        return send(nowLeftMs); // back into the line, for the time that is left
      }
    };
    const ask = async () => {
      if (this.away) await this.#asking.ask([['RL.PEEK'], [key], [...list(rules)]]); // a try that cannot take long
      return readReply(await this.#asking.guard(() => send(timeoutMs), { signal }));
    };
    const late = this.#late([key], options.hold);
    try {
      return await ask();
    } catch (error) {
      if (signal?.aborted && options.hold) void this.#cancel(key, options.hold.id);
      if (signal?.aborted) throw error;
      late(error);
      return shorten(this.#without(error, [{ key, rules }], options));
    }
  }

  /** Takes a hold that renews itself until it is settled; throws {@link Denied}. */
  async hold(key: string, rules: Rules, given: TakeOptions): Promise<Hold> {
    key = keyOf(key);
    inOrder('hold', given, TAKE);
    const { ttlMs: lifeMs, id = randomUUID(), refund = false, waitMs, signal, ...options } = given;
    this.needModule('hold');
    signal?.throwIfAborted();
    const ttlMs = Math.ceil(lifeMs);
    const asked = performance.now();
    const taking = { ...options, hold: { id, ttlMs, refund } };
    const reply = await (waitMs === undefined
      ? this.#reply('RL.CHECK', key, rules, taking)
      : this.wait(key, rules, waitMs, { ...taking, ...(signal && { signal }) }));
    if (reply.verdict !== 'allowed') throw new Denied(reply);
    const sinceMs = waitMs === undefined && reply.source === 'server' ? performance.now() - asked : 0;
    const hold = new Hold(id, reply, this.#keeper(reply, key, id, ttlMs), ttlMs, ttlMs - sinceMs);
    const turn = reply.waitMs > 0 ? sleep(reply.waitMs, undefined, { signal }) : undefined; // under a `leaky` rule
    try {
      await turn;
      signal?.throwIfAborted();
    } catch (error) {
      await hold.refund().catch(() => false);
      throw error;
    }
    return hold;
  }

  /** @internal Takes up to `most` units ahead, or, while the server is away, decides on `units` only. */
  async lease(key: string, rules: Rules, units: number, most: number, hold: HoldOptions): Promise<Report> {
    const limits = withRules([{ key, rules }]);
    if (limits.length === 0) return { ...PASSED, source: 'local' };
    return this.#orWithout(
      () => this.#checkTogether(limits, { cost: [units, most], hold }),
      (error) => this.#without(error, limits, { cost: units }),
    );
  }

  /** Ends a hold, in this process or on the server, wherever it was taken: `RL.SETTLE`; `false` if there was none. */
  async settle(key: string, id: string, options: SettleOptions = {}): Promise<boolean> {
    key = keyOf(key);
    inOrder('settle', options, SETTLE);
    const { cost, refund = false } = options;
    if (this.#local.settle(performance.now(), key, id, { ...(cost !== undefined && { cost }), refund })) return true;
    if (refund) return this.#takeBack(key, id);
    const command: Command = [['RL.SETTLE'], [key], [id, ...(cost === undefined ? [] : words({ cost }))]];
    return Number(await (cost === undefined ? this.#asking.ask(command) : this.#free(command))) === 1;
  }

  /** Moves the end of a hold, in this process or on the server, wherever it was taken: `RL.RENEW`; `false` if there was none. */
  async renew(key: string, id: string, ttlMs: number): Promise<boolean> {
    key = keyOf(key);
    inOrder('renew', { ttlMs }, { ttlMs: SPAN });
    if (this.#local.renew(performance.now(), key, id, ttlMs)) return true;
    return Number(await this.#asking.ask([['RL.RENEW'], [key], [id, 'PX', String(Math.ceil(ttlMs))]])) === 1;
  }

  /** Gives units back to the states of some rules, or of all; replies with the largest number that one state got back. */
  async refund(key: string, units: number, rules: Rules = []): Promise<number> {
    key = keyOf(key);
    inOrder('refund', { units }, { units: UNITS });
    return Number(await this.#free([['RL.REFUND'], [key], [String(units), ...list(rules)]]));
  }

  /** Forgets what was consumed. Blocks, exemptions and the history stay. */
  async reset(key: string): Promise<void> {
    key = keyOf(key);
    this.#local.reset(key);
    await this.#free([['RL.RESET'], [key], []]);
  }

  /** Denies every check of the key for `ms`; a pause that lasts longer stays: `RL.PAUSE`. Replies with the milliseconds left. */
  async pause(key: string, ms: number, reason?: string): Promise<number> {
    key = keyOf(key);
    inOrder('pause', { ms }, { ms: SPAN });
    this.needModule('pause');
    const leftMs = this.#local.pause(performance.now(), key, ms);
    try {
      const why = reason === undefined ? [] : ['REASON', reason];
      return Number(await this.#asking.ask([['RL.PAUSE'], [key], ['PX', String(Math.ceil(ms)), ...why]]));
    } catch (error) {
      if (this.#options.outage !== 'local' || !isOutage(error)) throw error;
      return leftMs;
    }
  }

  /** Ends a pause: `RL.RESUME`; `false` if there was none. */
  async resume(key: string): Promise<boolean> {
    key = keyOf(key);
    this.#local.resume(key);
    return Number(await this.#free([['RL.RESUME'], [key], []])) === 1;
  }

  /** Binds a policy to the key, for `ms` or until `unplan`: rules such as `'@plan:free'` then stand for that policy. */
  async plan(key: string, policy: string, ms?: number): Promise<void> {
    key = keyOf(key);
    inOrder('plan', { ms }, { ms: SPAN });
    await this.#free([['RL.PLAN'], [key], [policy, ...(ms === undefined ? [] : ['PX', String(Math.ceil(ms))])]]);
  }

  /** Forgets the plan of the key: `RL.UNPLAN`; `false` if there was none. */
  async unplan(key: string): Promise<boolean> {
    key = keyOf(key);
    return Number(await this.#free([['RL.UNPLAN'], [key], []])) === 1;
  }

  /** Lowers the remaining units of a rule to this number, and never raises them: `RL.SYNC`. Replies with the units consumed for that. */
  async sync(key: string, remaining: number, rule: string): Promise<number> {
    key = keyOf(key);
    inOrder('sync', { remaining }, { remaining: UNITS });
    return Number(await this.#asking.ask([['RL.SYNC'], [key], ['REMAINING', String(remaining), rule]]));
  }

  /**
   * Does what an upstream's answer says: a 429 or 503 pauses the key, and a header field that says how many units remain lowers
   * the rule to that number. `remaining` maps each such field to its rule: `{ 'x-ratelimit-remaining-tokens': 'bucket:30000/m' }`.
   *
   * A pause lasts as long as `Retry-After` says or, for a 429 without it, until the reset that the answer gives: at most 366 days.
   * Replies with the pause's milliseconds, or 0.
   * Fields that make no sense change nothing; an outage throws nothing.
   */
  async follow(key: string, status: number, headers: AnswerHeaders, remaining: Readonly<Record<string, string>> = {}): Promise<number> {
    this.needModule('follow');
    const told = fieldsOf(headers);
    const ms = pauseMs(status, told, Date.now());
    let pausedMs = 0;
    try {
      if (ms > 0) pausedMs = await this.pause(key, ms, String(status));
      for (const [field, rule] of Object.entries(remaining)) {
        const left = unitsOf(told.get(field.toLowerCase()));
        if (left === undefined) continue;
        const known = await this.peekAll(key, rule);
        if (known.rules.some(({ remaining }) => remaining > left)) await this.sync(key, left, rule);
      }
    } catch (error) {
      ignoreOutage(error);
    }
    return pausedMs;
  }

  /** Sends any other command whose first argument is its key, such as `RL.INFO`. An outage is thrown. */
  call(command: string, key: string, ...args: (string | number)[]): Promise<unknown> {
    return this.#asking.ask([[command], [key], args.map(String)]);
  }

  /** @internal Refuses what the script cannot do. */
  needModule(what: string): void {
    if (this.#byScript) throw needsModule(what);
  }

  /** @internal Refuses rules that the script does not have. */
  testRules(rules: Rules): void {
    if (this.#byScript) list(rules).forEach(scriptKnows);
  }

  get #byScript(): boolean {
    return this.#options.engine === 'script';
  }

  async #reply(command: string, key: string, rules: Rules, options: CheckOptions): Promise<Reply> {
    if (list(rules).length === 0) return shorten({ ...PASSED, source: 'local' });
    const late = this.#late([key], options.hold);
    try {
      return readReply(await this.#asking.ask([[command], [key], [...words(options), ...list(rules)]]));
    } catch (error) {
      late(error);
      return shorten(this.#without(error, [{ key, rules }], options, command === 'RL.PEEK'));
    }
  }

  async #checkTogether(limits: readonly Limit[], options: CheckOptions): Promise<Report> {
    const keys = limits.map(({ key }) => key);
    const head = keys.length === 1 ? ['RL.CHECK'] : ['RL.MCHECK', String(keys.length)];
    const late = this.#late(keys, options.hold);
    try {
      return readReport(await this.#asking.ask([head, keys, [...words(options), 'FULL', ...groups(limits)]]));
    } catch (error) {
      late(error);
      throw error;
    }
  }

  async #checkEach(limits: readonly Limit[], options: CheckOptions): Promise<Report> {
    eachKeyOnce(limits); // a second check of a key would repeat the first one's hold, and pass
    const costs = costsApart(options.cost ?? 1, limits);
    const own = receipt(APART_MS);
    const held: HeldKey[] = [];
    let all: Report = { ...PASSED, source: 'server' };
    for (const [i, limit] of limits.entries()) {
      const { key, rules } = limit;
      // The last key is never given back, and a check with slots has its own hold.
      const hold = i === limits.length - 1 || list(rules).some((rule) => rule.startsWith('slots:')) ? undefined : own;
      const one = await whereRoom(options.hold ? undefined : hold, async (hold = options.hold) => {
        const report = await this.#checkTogether([limit], { ...options, cost: costs[i]!, ...(hold && { hold }) });
        if (hold && report.verdict === 'allowed') held.push({ key, id: hold.id });
        if (hold === own) noSlots(report.rules.map(({ rule }) => rule)); // of a policy
        return report;
      }).catch(async (error: unknown) => {
        if (isUndecided(error)) for (const { key, id } of held) void this.#cancel(key, id); // a silent server delays no answer
        else await this.#undo(held);
        throw error;
      });
      const reports = [...all.rules, ...one.rules.map((rule) => ({ ...rule, key }))];
      if (one.verdict !== 'allowed') {
        await this.#undo(held);
        return { ...one, key, rules: reports };
      }
      all = { ...one, waitMs: Math.max(all.waitMs, one.waitMs), rules: reports };
    }
    return all;
  }

  async #undo(held: readonly HeldKey[]): Promise<void> {
    for (const { key, id } of held) await this.settle(key, id, { refund: true }).catch(() => false); // on an error the key stays charged
  }

  /** `#checkEach` by the script, which knows no holds: refunds give back the charges. */
  async #checkByScript(limits: readonly Limit[], { cost = 1, ...options }: CheckOptions): Promise<Report> {
    eachKeyOnce(limits);
    if (isRange(cost)) throw needsModule('a range of costs');
    const costs = costsApart(cost, limits);
    const undo = async (passed: number): Promise<void> => {
      for (const [i, { key, rules }] of limits.slice(0, passed).entries()) {
        for (const [units, of] of charges(rules, costs[i]!)) await this.refund(key, units, of).catch(() => 0); // on an error it stays charged
      }
    };
    let all: Report = { ...PASSED, source: 'server' };
    for (const [i, limit] of limits.entries()) {
      const one = await this.#askScript(limit, { ...options, cost: costs[i]! }).catch(async (error: unknown) => {
        const undone = undo(i);
        if (!isUndecided(error)) await undone; // a silent server delays no answer
        throw error;
      });
      const rules = [...all.rules, ...one.rules];
      if (one.verdict !== 'allowed') {
        await undo(i);
        return { ...one, rules };
      }
      all = { ...one, waitMs: Math.max(all.waitMs, one.waitMs), rules };
    }
    return all;
  }

  async #askScript(limit: Limit, options: CheckOptions & { cost: Cost }): Promise<Report> {
    const command: Command = [['RL.CHECK'], [limit.key], [...words(options), ...list(limit.rules)]];
    return reportOf(readReply(await this.#asking.ask(command)), limit, options.cost);
  }

  /** Returns what to do if the check fails: give back the hold, which the server may still take. */
  #late(keys: readonly string[], hold: HoldOptions | undefined): (error: unknown) => void {
    if (!hold || this.#asking.rests) return () => {};
    return (error) => {
      if (kindOf(error) === 'outage') for (const key of new Set(keys)) void this.#cancel(key, hold.id);
    };
  }

  /** Gives back a hold whose caller has given up, even if the server takes the hold only a moment later. */
  async #cancel(key: string, id: string): Promise<void> {
    const until = performance.now() + LONGEST_MS;
    for (const ms of CANCEL_MS) {
      await sleep(ms, undefined, { ref: false });
      if (await this.#takeBackBefore(until, key, id)) return;
    }
  }

  /** Gives back a hold of the server; while the server is away, waits and tries again. */
  async #takeBackBefore(until: number, key: string, id: string): Promise<boolean> {
    for (;;) {
      const outcome = await this.#takeBack(key, id).catch((error: unknown) => kindOf(error));
      if (outcome !== 'outage') return outcome === true;
      if (performance.now() > until) return false;
      await sleep(AGAIN_MS, undefined, { ref: false });
    }
  }

  /** Gives back a hold of the server. */
  async #takeBack(key: string, id: string): Promise<boolean> {
    return Number(await this.#free([['RL.SETTLE'], [key], [id, 'REFUND']])) === 1;
  }

  /** Sends a command that frees a key. Forgets remembered denials before and after: replies to older checks may arrive in between. */
  async #free(command: Command): Promise<unknown> {
    const [, [key]] = command;
    this.#forget(key!);
    try {
      return await this.#asking.ask(command);
    } finally {
      this.#forget(key!);
    }
  }

  async #orWithout<T>(ask: () => Promise<T>, without: (error: unknown) => T): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      return without(error);
    }
  }

  /** The answer to a check that the server did not decide. */
  #without(error: unknown, limits: readonly Limit[], options: CheckOptions, peek = false): Report {
    if (!isOutage(error)) throw error;
    this.#notices.answered += 1;
    const { cost = 1 } = options;
    const key = limits.length > 1 && { key: limits[0]!.key };
    const range = isRange(cost) && cost;
    switch (this.#options.outage) {
      case 'allow': return { ...PASSED, ...key, ...(range && { granted: range[1] }), source: 'outage' };
      case 'deny': return { ...PASSED, ...key, ...(range && { granted: 0 }), verdict: 'limited', waitMs: 1000, source: 'outage' };
      case 'local': return this.#local.decide(performance.now(), limits, options, peek);
      default: throw error;
    }
  }

  #keeper({ source, limit }: Reply, key: string, id: string, ttlMs: number): Keeper {
    if (source === 'server') {
      return {
        renew: async () => (await this.renew(key, id, ttlMs)) || limit === -1, // exempt keys take no holds
        settle: (options) => this.settle(key, id, options),
      };
    }
    return {
      renew: async () => this.#local.renew(performance.now(), key, id, ttlMs) || limit === -1, // without a limit no hold is kept here
      settle: async (options) => this.#local.settle(performance.now(), key, id, options),
    };
  }

  #forget(key: string): void {
    this.#denials?.forget(key);
    this.#reports?.forget(key);
  }
}

/** A key that was charged with a hold. */
interface HeldKey {
  key: string;
  id: string;
}

function withRules(limits: readonly Limit[]): readonly Limit[] {
  return limits.filter(({ rules }) => list(rules).length > 0).map(({ key, rules }) => ({ key: keyOf(key), rules }));
}

function eachKeyOnce(limits: readonly Limit[]): void {
  if (new Set(limits.map(({ key }) => key)).size < limits.length) throw new TypeError('a key is given twice, expected each key once');
}

/** Whether a remembered denial may answer: not for a check that may repeat a live hold. */
function remembers(hold: HoldOptions | undefined): boolean {
  return !hold || hold.fresh === true;
}

const PASSED: Omit<Report, 'source'> = { verdict: 'allowed', waitMs: 0, rules: [] };

export type { CheckOptions, Cost, HoldOptions, Limit, Rules, Turn };
