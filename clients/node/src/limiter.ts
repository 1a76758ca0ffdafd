import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import { Asking, type AskingOptions } from './asking.js';
import { Denials } from './denials.js';
import { Denied } from './errors.js';
import { Hold, type Keeper, receipt, SETTLE, type SettleOptions, whereRoom } from './hold.js';
import { type Command, type Key, type Library, nameOf } from './library.js';
import { LocalLimiter, type LocalOptions } from './local.js';
import { type NoticeOptions, Notices } from './notices.js';
import { CALLBACK, FLAG, type Form, type Forms, inOrder, integer, mustBe, oneOf, SPAN, TEXT, TIME, TIME_OR_0 } from './options.js';
import { ignoreOutage, isOutage, isUnblocked, isUndecided, kindOf } from './outage.js';
import { readFlag, readNumber, readReply, readReport, type Reply, type Report, shorten } from './replies.js';
import { CHECK, type CheckOptions, COST, type Cost, costsApart, groups, type HoldOptions, isRange, keyOf, type Limit, list, type Read, readLimits, type Rules, TURN, type Turn, UNITS, words } from './request.js';
import { calledOf, fit, looksLikeRules, namesNoPolicy, SLOTS } from './rule.js';
import { charges, needsModule, reportOf, scriptKnows } from './script.js';
import { Settler } from './settler.js';
import { type AnswerHeaders, fieldsOf, pauseMs, unitsOf } from './upstream.js';

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
  outage: oneOf('raise', 'allow', 'deny', 'local'), engine: oneOf('module', 'script'), separately: FLAG,
  timeoutMs: TIME, queueTimeoutMs: TIME_OR_0, concurrency: integer(1), processes: integer(1), rememberDenials: integer(0),
  onOutage: CALLBACK, onMisconfigured: CALLBACK, onDecision: CALLBACK,
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
/** For how long to try a settlement again whose hold's end is unknown. */
const MINUTE_MS = 60_000;
/** How often to ask again for a hold that the server does not know: the command that takes it may still be on its way. */
const MISSES = 4;
const NONE: CheckOptions = {};
const PASSED: Omit<Report, 'source'> = { verdict: 'allowed', waitMs: 0, rules: [] };

/** A key as a caller may give it: a text, bytes, or a whole number as its text. */
type GivenKey = Limit['key'];

/** The commands of an application. `ioredis()`, `iovalkey()` and `nodeRedis()` make a `RateLimiter` from a client. */
export class RateLimiter implements AsyncDisposable {
  readonly #asking: Asking;
  readonly #settler = new Settler();
  readonly #notices: Notices;
  readonly #local: LocalLimiter;
  readonly #options: LimiterOptions;
  readonly #denials: Denials | undefined;

  /** Without a library, this process decides. */
  constructor(library: Library | undefined, options: LimiterOptions = {}) {
    inOrder('limiter', options, FORMS);
    for (const rules of Object.values(options.policies ?? {})) {
      looksLikeRules(rules);
      namesNoPolicy(list(rules));
    }
    this.#notices = new Notices(options);
    this.#asking = new Asking(library, this.#notices, options);
    this.#local = new LocalLimiter(options);
    this.#options = options;
    if (options.rememberDenials) this.#denials = new Denials(options.rememberDenials);
  }

  /** A limiter that asks no server: this process decides, by an estimate. For tests, and for programs of one process. */
  static inProcess(policies: LocalOptions['policies'] = {}, options: Pick<LimiterOptions, 'onDecision'> = {}): RateLimiter {
    return new RateLimiter(undefined, { ...options, policies, outage: 'local' });
  }

  /** Whether a node is away: the server, or a primary of a cluster. */
  get away(): boolean {
    return this.#asking.away;
  }

  /** How many requests got no decision from the server. */
  get outages(): number {
    return this.#notices.answered;
  }

  /** Ends the limiter's connections, and all that is under way. The client stays as it is. */
  async close(): Promise<void> {
    this.#settler.close();
    this.#asking.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`. */
  check(key: GivenKey, rules: Rules, options: CheckOptions = NONE): Promise<Reply> {
    try {
      const limit = { key: keyOf(key), rules: list(rules) };
      if (options !== NONE) inOrder('check', options, CHECK);
      return this.#told(limit.rules, this.#check(limit, options));
    } catch (error) {
      return Promise.reject(error); // an async function would add a promise to each check
    }
  }

  /** Decides without consuming: `RL.PEEK`. */
  async peek(key: GivenKey, rules: Rules, options: Pick<CheckOptions, 'cost'> = NONE): Promise<Reply> {
    inOrder('peek', options, PEEK);
    return this.#reply('RL.PEEK', { key: keyOf(key), rules: list(rules) }, options);
  }

  /** Decides on one or several keys, consumes from all or from none, and reports on each rule: `FULL`. */
  async checkAll(limits: readonly Limit[], options: CheckOptions = NONE): Promise<Report> {
    inOrder('checkAll', options, CHECK);
    const read = readLimits(limits);
    return this.#told(read.flatMap(({ rules }) => rules), this.#checkAll(read, options));
  }

  /**
   * Consumes from the first key that lets the request pass, or with `most` from the one that has the most left
   * afterwards, and from no other: `ANY`. The report has that key, or after a denial the key with the shortest wait.
   * Without the server the first key decides.
   */
  async checkAny(limits: readonly Limit[], given: AnyOptions = NONE): Promise<Report> {
    inOrder('checkAny', given, ANY);
    const { most = false, ...options } = given;
    const read = readLimits(limits);
    const first = read[0]!;
    const keys = read.map(({ key }) => key);
    const rest = ['ANY', ...(most ? ['MOST'] : []), ...words(options), 'FULL', ...groups(read)];
    const ask = async () => readReport(await this.#asking.ask([['RL.MCHECK', String(keys.length)], keys, rest]));
    const report = ask().catch((error: unknown) => withKey(this.#without(error, [first], options), first.key));
    return this.#told(read.flatMap(({ rules }) => rules), report);
  }

  /** Reports on each rule of a key without consuming. */
  async peekAll(key: GivenKey, rules: Rules, options: Pick<CheckOptions, 'cost'> = NONE): Promise<Report> {
    const limit = { key: keyOf(key), rules: list(rules) };
    inOrder('peekAll', options, PEEK);
    const ask = async () => readReport(await this.#asking.ask([['RL.PEEK'], [limit.key], [...words(options), 'FULL', ...limit.rules]]));
    return ask().catch((error: unknown) => this.#without(error, [limit], options, true));
  }

  /**
   * Waits in line until the request passes, for at most `timeoutMs`: `RL.WAIT`, on a connection for this call. While the server is
   * away nobody waits: the reply is that of `check`.
   */
  async wait(key: GivenKey, rules: Rules, timeoutMs: number, given: WaitOptions = NONE): Promise<Reply> {
    const limit = { key: keyOf(key), rules: list(rules) };
    inOrder('wait', given, WAIT);
    mustBe('wait', 'timeoutMs', timeoutMs, TIME_OR_0);
    const { signal, ...options } = given;
    this.needModule('wait');
    signal?.throwIfAborted();
    return this.#told(limit.rules, this.#wait(limit, timeoutMs, options, signal));
  }

  /** Takes a hold that renews itself until it is settled; throws {@link Denied}. */
  async hold(given: GivenKey, rules: Rules, options: TakeOptions): Promise<Hold> {
    const limit = { key: keyOf(given), rules: list(rules) };
    inOrder('hold', options, TAKE);
    const { ttlMs: lifeMs, id = randomUUID(), refund = false, waitMs, signal, ...rest } = options;
    mustBe('hold', 'ttlMs', lifeMs, SPAN);
    this.needModule('hold');
    signal?.throwIfAborted();
    const { key } = limit;
    const ttlMs = Math.ceil(lifeMs);
    const began = performance.now();
    const taking = { ...rest, hold: { id, ttlMs, refund } };
    const asking = waitMs === undefined ? orAborted(this.#reply('RL.CHECK', limit, taking), signal) : this.#wait(limit, waitMs, taking, signal);
    const reply = await this.#told(limit.rules, asking).catch((error: unknown) => {
      if (signal?.aborted) this.#giveBack(key, id, ttlMs);
      throw error;
    });
    if (reply.verdict !== 'allowed') throw new Denied(reply);
    const sinceMs = waitMs === undefined && reply.source === 'server' ? performance.now() - began : 0;
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
  async lease(limit: Read, units: number, most: number, hold: HoldOptions): Promise<Report> {
    return this.#checkTogether([limit], { cost: [units, most], hold }).catch((error: unknown) => this.#without(error, [limit], { cost: units }));
  }

  /** Ends a hold, in this process or on the server, wherever it was taken: `RL.SETTLE`; `false` if there was none. */
  async settle(key: GivenKey, id: string, options: SettleOptions = {}): Promise<boolean> {
    mustBe('settle', 'id', id, TEXT);
    inOrder('settle', options, SETTLE);
    return this.settleWithin(MINUTE_MS, keyOf(key), id, options);
  }

  /** @internal Settles a hold that ends after `leftMs`. After an outage, the limiter goes on trying. */
  async settleWithin(leftMs: number, key: Key, id: string, { cost, refund = false }: SettleOptions): Promise<boolean> {
    if (this.#local.settle(performance.now(), key, id, { ...(cost !== undefined && { cost }), refund })) return true;
    const command: Command = [['RL.SETTLE'], [key], [id, ...(refund ? ['REFUND'] : words(cost === undefined ? {} : { cost }))]];
    const settle = async () => readFlag(await (cost === undefined && !refund ? this.#asking.ask(command) : this.#free(command)));
    try {
      return await settle();
    } catch (error) {
      if (isUndecided(error)) this.#settler.add(id, leftMs, settle);
      throw error;
    }
  }

  /** Moves the end of a hold, in this process or on the server, wherever it was taken: `RL.RENEW`; `false` if there was none. */
  async renew(given: GivenKey, id: string, ttlMs: number): Promise<boolean> {
    const key = keyOf(given);
    mustBe('renew', 'id', id, TEXT);
    mustBe('renew', 'ttlMs', ttlMs, SPAN);
    if (this.#local.renew(performance.now(), key, id, ttlMs)) return true;
    return readFlag(await this.#asking.ask([['RL.RENEW'], [key], [id, 'PX', String(Math.ceil(ttlMs))]]));
  }

  /** Gives units back to the states of some rules, or of all; replies with the largest number that one state got back. */
  async refund(key: GivenKey, units: number, rules?: Rules): Promise<number> {
    mustBe('refund', 'units', units, UNITS);
    const texts = rules === undefined ? undefined : list(rules);
    if (this.#asking.asksNobody) return this.#local.refund(performance.now(), keyOf(key), units, texts);
    return readNumber(await this.#free([['RL.REFUND'], [keyOf(key)], [String(units), ...(texts ?? [])]]));
  }

  /** Forgets what was consumed; `false` if nothing was. Blocks, exemptions and the history stay. */
  async reset(given: GivenKey): Promise<boolean> {
    const key = keyOf(given);
    const here = this.#local.reset(key);
    return (this.#asking.asksNobody ? false : readFlag(await this.#free([['RL.RESET'], [key], []]))) || here;
  }

  /** Denies every check of the key for `ms`; a pause that lasts longer stays: `RL.PAUSE`. Replies with the milliseconds left. */
  async pause(given: GivenKey, ms: number, reason?: string): Promise<number> {
    const key = keyOf(given);
    mustBe('pause', 'ms', ms, SPAN);
    this.needModule('pause');
    const leftMs = this.#local.pause(performance.now(), key, ms);
    const why = reason === undefined ? [] : ['REASON', reason];
    const ask = () => this.#asking.ask([['RL.PAUSE'], [key], ['PX', String(Math.ceil(ms)), ...why]]);
    return readNumber(await ask().catch((error: unknown) => (this.#options.outage === 'local' && isOutage(error) ? leftMs : Promise.reject(error))));
  }

  /** Ends a pause: `RL.RESUME`; `false` if there was none. */
  async resume(given: GivenKey): Promise<boolean> {
    const key = keyOf(given);
    const here = this.#local.resume(key);
    return this.#asking.asksNobody ? here : readFlag(await this.#free([['RL.RESUME'], [key], []]));
  }

  /** Binds a policy to the key, for `ms` or until `unplan`: rules such as `'@plan:free'` then stand for that policy. */
  async plan(key: GivenKey, policy: string, ms?: number): Promise<void> {
    mustBe('plan', 'policy', policy, TEXT);
    if (ms !== undefined) mustBe('plan', 'ms', ms, SPAN);
    await this.#free([['RL.PLAN'], [keyOf(key)], [policy, ...(ms === undefined ? [] : ['PX', String(Math.ceil(ms))])]]);
  }

  /** Forgets the plan of the key: `RL.UNPLAN`; `false` if there was none. */
  async unplan(key: GivenKey): Promise<boolean> {
    return readFlag(await this.#free([['RL.UNPLAN'], [keyOf(key)], []]));
  }

  /** Lowers the remaining units of a rule to this number, and never raises them: `RL.SYNC`. Replies with the units consumed for that. */
  async sync(key: GivenKey, remaining: number, rule: string): Promise<number> {
    mustBe('sync', 'remaining', remaining, UNITS);
    return readNumber(await this.#asking.ask([['RL.SYNC'], [keyOf(key)], ['REMAINING', String(remaining), ...list(rule)]]));
  }

  /**
   * Does what an upstream's answer says: a refusal pauses the key, and a header field that says how many units remain lowers the
   * rule to that number. `remaining` maps each such field to its rule: `{ 'x-ratelimit-remaining-tokens': 'bucket:30000/m' }`.
   *
   * A refusal is a 403, 429, 503 or 529. Its pause lasts as long as `Retry-After` says or, without it, until the reset of the window
   * that has 0 left: at most 366 days.
   * Replies with the pause's milliseconds, or 0.
   * Fields that make no sense change nothing; an outage throws nothing.
   */
  async follow(key: GivenKey, status: number, headers: AnswerHeaders, remaining: Readonly<Record<string, string>> = {}): Promise<number> {
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
  async call(command: string, key: GivenKey, ...args: (string | number)[]): Promise<unknown> {
    return this.#asking.ask([[command], [keyOf(key)], args.map(String)]);
  }

  /** @internal Refuses what the script cannot do. */
  needModule(what: string): void {
    if (this.#byScript) throw needsModule(what);
  }

  /** @internal Refuses rules that the script does not have. */
  testRules(rules: readonly string[]): void {
    if (this.#byScript) rules.forEach(scriptKnows);
  }

  /** @internal Calls the hook after an answer. */
  tell({ source, verdict }: Pick<Report, 'source' | 'verdict'>, rule: string | undefined, ms: number): void {
    if (this.#options.onDecision) this.#notices.decision({ source, verdict, rule, ms });
  }

  get #byScript(): boolean {
    return this.#options.engine === 'script';
  }

  #told<T extends Reply | Report>(rules: readonly string[], asked: Promise<T>): Promise<T> {
    if (!this.#options.onDecision) return asked;
    const began = performance.now();
    return asked.then((answer) => {
      const shown = 'rules' in answer && answer.verdict !== 'allowed' ? answer.rules.find(({ denies, shadow }) => denies && !shadow) : undefined;
      const only = rules.length === 1 ? calledOf(rules[0]!) : undefined;
      this.tell(answer, shown ? (shown.name ?? shown.rule) : only, performance.now() - began);
      return answer;
    });
  }

  #check(limit: Read, options: CheckOptions): Promise<Reply> {
    if (!this.#denials || !remembers(options.hold)) return this.#reply('RL.CHECK', limit, options);
    return this.#denials.answer('check', [limit], options.cost ?? 1, () => this.#reply('RL.CHECK', limit, options));
  }

  #checkAll(limits: readonly Read[], options: CheckOptions): Promise<Report> {
    const apart = this.#byScript || (this.#options.separately && limits.length > 1);
    const ask = () => (apart ? this.#checkEach(limits, options) : this.#checkTogether(limits, options))
      .catch((error: unknown) => this.#without(error, limits, options));
    return this.#denials && remembers(options.hold) ? this.#denials.answer('checkAll', limits, options.cost ?? 1, ask) : ask();
  }

  async #wait(limit: Read, timeoutMs: number, options: CheckOptions & Turn, signal: AbortSignal | undefined): Promise<Reply> {
    const { key, rules } = limit;
    const until = performance.now() + timeoutMs;
    const ask = async (leftMs: number): Promise<Reply> => {
      const command: Command = [['RL.WAIT'], [key], [String(Math.ceil(leftMs)), ...words(options), ...rules]];
      try {
        return readReply(await this.#asking.wait(command, leftMs + LATE_MS, signal), isRange(options.cost ?? 1));
      } catch (error) {
        const nowLeftMs = until - performance.now();
        if (!isUnblocked(error) || nowLeftMs <= 0) throw error;
        return ask(nowLeftMs); // back into the line, for the time that is left
      }
    };
    return this.#orGiveBack([key], options.hold, ask(timeoutMs)).catch((error: unknown) => {
      if (signal?.aborted) throw error;
      return shorten(this.#without(error, [limit], options));
    });
  }

  async #reply(command: string, limit: Read, options: CheckOptions): Promise<Reply> {
    const { cost = 1, hold } = options;
    const peek = command === 'RL.PEEK';
    const tail = options === NONE ? (limit.rules as string[]) : [...words(options), ...limit.rules];
    try {
      const asked = this.#asking.ask([[command], [limit.key], tail], peek || hold !== undefined);
      return readReply(await (hold ? this.#orGiveBack([limit.key], hold, asked) : asked), isRange(cost));
    } catch (error) {
      return shorten(this.#without(error, [limit], options, peek));
    }
  }

  async #checkTogether(limits: readonly Read[], options: CheckOptions): Promise<Report> {
    const keys = limits.map(({ key }) => key);
    const head = keys.length === 1 ? ['RL.CHECK'] : ['RL.MCHECK', String(keys.length)];
    const asked = this.#asking.ask([head, keys, [...words(options), 'FULL', ...groups(limits)]], options.hold !== undefined);
    return readReport(await this.#orGiveBack(keys, options.hold, asked));
  }

  /** Checks one key after the other. If one denies, the others get back what they gave. */
  async #checkEach(limits: readonly Read[], options: CheckOptions): Promise<Report> {
    if (new Set(limits.map(({ key }) => nameOf(key))).size < limits.length) {
      throw new TypeError('a key is given twice, expected each key once'); // its second check would repeat the first one's hold, and pass
    }
    if (this.#byScript && isRange(options.cost ?? 1)) throw needsModule('a range of costs');
    const costs = costsApart(options.cost ?? 1, limits);
    const check = this.#byScript ? this.#checkByScript.bind(this) : this.#checkHeld.bind(this, receipt(APART_MS), limits.at(-1)!);
    const backs: (() => Promise<unknown>)[] = [];
    const undo = () => Promise.all(backs.map((giveBack) => giveBack().catch(() => {}))); // on an error it stays charged
    let all: Report = { ...PASSED, source: 'server' };
    for (const [i, limit] of limits.entries()) {
      const one = withKey(await check(limit, { ...options, cost: costs[i]! }, backs).catch(async (error: unknown) => {
        const undone = undo();
        if (!isUndecided(error)) await undone; // a silent server delays no answer
        throw error;
      }), limit.key);
      const rules = [...all.rules, ...one.rules];
      if (one.verdict !== 'allowed') {
        await undo();
        return { ...one, rules };
      }
      const { key: _, ...passed } = one;
      all = { ...passed, waitMs: Math.max(all.waitMs, one.waitMs), rules };
    }
    return all;
  }

  /** Checks with a hold, by which the key can get its units back. The last key needs none, and a check with slots has its own. */
  async #checkHeld(own: HoldOptions, last: Read, limit: Read, options: CheckOptions, backs: (() => Promise<unknown>)[]): Promise<Report> {
    const mayHold = !options.hold && limit !== last && !limit.rules.some((rule) => rule.startsWith('slots:'));
    return whereRoom(mayHold ? own : undefined, async (hold = options.hold) => {
      const report = await this.#checkTogether([limit], { ...options, ...(hold && { hold }) });
      if (hold && report.verdict === 'allowed') backs.push(() => this.settleWithin(hold.ttlMs, limit.key, hold.id, { refund: true }));
      if (hold === own) fit(report.rules.map(({ rule }) => rule), [SLOTS]); // of a policy
      return report;
    });
  }

  /** The script knows no holds: refunds give back the charges. */
  async #checkByScript(limit: Read, { cost = 1, ...options }: CheckOptions, backs: (() => Promise<unknown>)[]): Promise<Report> {
    const command: Command = [['RL.CHECK'], [limit.key], [...words({ ...options, cost }), ...limit.rules]];
    const report = reportOf(readReply(await this.#asking.ask(command), false), limit, cost);
    backs.push(async () => {
      for (const [units, rules] of charges(limit.rules, cost)) await this.refund(limit.key, units, rules);
    });
    if (report.verdict !== 'allowed') backs.pop();
    return report;
  }

  /** Gives back the hold of a check that failed: the server may take it all the same, unless nothing was sent. */
  #orGiveBack<T>(keys: readonly Key[], hold: HoldOptions | undefined, asked: Promise<T>): Promise<T> {
    if (!hold || this.#asking.awayFor(keys[0]!)) return asked;
    return asked.catch((error: unknown) => {
      if (kindOf(error) === 'outage') for (const key of new Set(keys)) this.#giveBack(key, hold.id, hold.ttlMs);
      throw error;
    });
  }

  /** Gives back a hold whose caller has given up, even if the server takes the hold only a moment later. */
  #giveBack(key: Key, id: string, ttlMs: number): void {
    const giveBack = async () => readFlag(await this.#free([['RL.SETTLE'], [key], [id, 'REFUND']]));
    void giveBack()
      .catch((error: unknown) => !isUndecided(error))
      .then((done) => done || this.#settler.add(id, ttlMs, giveBack, MISSES));
  }

  /** Sends a command that frees a key. Forgets remembered denials before and after: replies to older checks may arrive in between. */
  async #free(command: Command): Promise<unknown> {
    const key = nameOf(command[1][0]!);
    this.#denials?.forget(key);
    try {
      return await this.#asking.ask(command);
    } finally {
      this.#denials?.forget(key);
    }
  }

  /** The answer to a check that the server did not decide. */
  #without(error: unknown, limits: readonly Read[], options: CheckOptions, peek = false): Report {
    if (!isOutage(error)) throw error;
    if (!this.#asking.asksNobody) this.#notices.answered += 1;
    if (kindOf(error) === 'misconfigured') this.#notices.misconfigured(performance.now(), error as Error);
    const { cost = 1 } = options;
    const key = limits.length > 1 && { key: String(limits[0]!.key) };
    const range = isRange(cost) && cost;
    switch (this.#options.outage) {
      case 'allow': return { ...PASSED, ...key, ...(range && { granted: range[1] }), source: 'outage' };
      case 'deny': return { ...PASSED, ...key, ...(range && { granted: 0 }), verdict: 'limited', waitMs: 1000, source: 'outage' };
      case 'local': return this.#local.decide(performance.now(), limits, options, peek);
      default: throw error;
    }
  }

  #keeper({ source, limit }: Reply, key: Key, id: string, ttlMs: number): Keeper {
    if (source === 'server') {
      return {
        renew: async () => (await this.renew(key, id, ttlMs)) || limit === -1, // exempt keys take no holds
        settle: (options, leftMs) => this.settleWithin(leftMs, key, id, options),
      };
    }
    return {
      renew: async () => this.#local.renew(performance.now(), key, id, ttlMs) || limit === -1, // without a limit no hold is kept here
      settle: async (options) => this.#local.settle(performance.now(), key, id, options),
    };
  }
}

function withKey(report: Report, key: Key): Report {
  return { ...report, key: String(key), rules: report.rules.map((rule) => ({ ...rule, key: String(key) })) };
}

/** Whether a remembered denial may answer: not for a check that may repeat a live hold. */
function remembers(hold: HoldOptions | undefined): boolean {
  return !hold || hold.fresh === true;
}

/** Rejects at once if the signal aborts. */
async function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  const settled = new AbortController();
  const aborted = new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { signal: settled.signal }));
  return Promise.race([promise, aborted]).finally(() => settled.abort());
}

export type { CheckOptions, Cost, HoldOptions, Limit, Rules, Turn };
