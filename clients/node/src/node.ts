// A node is the server, or a primary of a cluster. It answers, or it is away: then nobody waits for it, and a probe tries whether
// it is back. It goes away if no connection can be made, if one ends before its first reply, or if a request times out and no
// reply has arrived in time since that request was sent. At half of a request's time-out, a connection beside the first asks
// whether the node is silent, or only the connection is dead.

import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';

import type { Connection, Library, Servers, Word } from './library.js';
import { codeOf, isReply } from './outage.js';

/** A connection that was idle for this long may have ended: we look before we use it ... */
const IDLE_MS = 1000;
/** ... and replace it after this time. */
const OLD_MS = 60_000;
/** The pauses between the starts of probes. Each is up to a quarter longer. */
const PAUSES_MS = [0, 50, 100, 200, 400, 800] as const;
/** The pauses go on where they were if the node goes away again within this time. */
const AGAIN_MS = 10_000;
/** If the process was busy for this long, replies may wait to be read: requests get more time, ... */
const BUSY_MS = 20;
/** ... a part of the time-out for at most this number of times. */
const SPARED = 5;
/** While callers wait in line, the limiter asks at this interval whether the node is silent. */
const ASK_MS = 5000;
/** Replies after which other connections may reach a better server: a replica has become the primary. */
const DEMOTED = new Set(['READONLY', 'MASTERDOWN']);
const TOO_MANY = /^ERR max number of clients/;

interface Link extends Connection {
  usedAt: number;
  underWay: number;
  answered: boolean;
  retired: boolean;
}

interface Request {
  words: readonly Word[];
  repeatable: boolean;
  at: number;
  /** How many replies the node had sent in time before this request. */
  before: number;
  spared: number;
  link: Link | undefined;
  resolve(reply: unknown): void;
  reject(error: unknown): void;
}

export interface NodeOptions {
  /** In errors and events. */
  name: string;
  timeoutMs: number;
  open: Library['open'];
  /** The node has gone away, or is back. */
  tell(away: boolean, node: string, error: unknown): void;
  /** Called before each probe. */
  beforeProbe?(): Promise<unknown>;
}

export class Node implements Servers {
  readonly name: string;
  readonly #options: NodeOptions;
  readonly #timeoutMs: number;
  readonly #links = new Set<Link>();
  readonly #underWay = new Set<Request>();
  readonly #waiting = new Set<(error: unknown) => void>();
  /** Connections of callers that have waited. */
  readonly #spare = new Set<Link>();
  #link: Link | undefined;
  #opening: Promise<Link> | undefined;
  #question: Promise<unknown> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #due = 0;
  #replies = 0;
  #error: unknown;
  #away = false;
  #closed = false;
  #pause = 0;
  #backAt = -AGAIN_MS;
  #demotedAt = -IDLE_MS;

  constructor(options: NodeOptions) {
    this.#options = options;
    this.#timeoutMs = options.timeoutMs;
    this.name = options.name;
  }

  get away(): boolean {
    return this.#away;
  }

  awayFor(): boolean {
    return this.#away;
  }

  ask(words: readonly Word[], _key: Word, repeatable: boolean): Promise<unknown> {
    if (this.#away || this.#closed) return Promise.reject(this.#error);
    return new Promise((resolve, reject) => {
      const at = performance.now();
      const request = { words, repeatable, at, before: this.#replies, spared: 0, link: undefined, resolve, reject };
      this.#underWay.add(request);
      if (!this.#timer) this.#lookAfter(this.#timeoutMs / 2);
      else if (this.#underWay.size === 1) this.#timer.ref();
      const link = this.#link;
      if (link?.alive() && (link.underWay > 0 || at - link.usedAt < IDLE_MS)) this.#send(request, link);
      else void this.#sendLater(request);
    });
  }

  async wait(words: readonly Word[], _key: Word, ms: number, signal?: AbortSignal): Promise<unknown> {
    signal?.throwIfAborted();
    if (this.#away || this.#closed) throw this.#error;
    const ended = new AbortController();
    let leave!: (error: unknown) => void;
    const left = new Promise<never>((_, reject) => this.#waiting.add((leave = reject)));
    signal?.addEventListener('abort', () => leave(signal.reason), { signal: ended.signal });
    sleep(Math.min(ms, 2 ** 31 - 1), undefined, { signal: ended.signal }).then(() => leave(new Error(`no reply within ${ms} ms`)), () => {});
    const alive = setInterval(() => this.ask(['PING'], '', true).catch(() => {}), ASK_MS).unref();
    const spare = [...this.#spare].find((link) => this.#spare.delete(link) && link.alive());
    const opening = spare ? Promise.resolve(spare) : this.#openOrLeave();
    try {
      const link = await Promise.race([opening, left]);
      const reply = await Promise.race([link.send(words), left]);
      this.#spare.add(link);
      setTimeout(() => this.#spare.delete(link) && this.#end(link), IDLE_MS).unref();
      return reply;
    } catch (error) {
      opening.then((link) => this.#end(link), () => {});
      throw error;
    } finally {
      ended.abort();
      clearInterval(alive);
      this.#waiting.delete(leave);
    }
  }

  /** Ends the connections once nothing is under way; the next command opens another. */
  rest(): void {
    for (const link of this.#links) this.#retire(link);
  }

  close(): void {
    this.#closed = true;
    this.#away = false;
    this.#drop(new Error('the limiter is closed'));
    clearTimeout(this.#timer);
  }

  /** The cluster has no such node any more. Requests under way may still be answered. */
  leaveMap(): void {
    if (this.#away) this.#options.tell(false, this.name, this.#error);
    this.#closed = true;
    this.#away = false;
    this.#error = new Error('the node has left the cluster');
    this.rest();
  }

  /** If no connection can be made, the node goes away, which rejects all that is under way. */
  #openOrLeave(): Promise<Link> {
    return this.#open().catch((error: unknown) => Promise.reject((this.#leave(error), error)));
  }

  async #sendLater(request: Request): Promise<void> {
    const link = await this.#ready(request.at).catch(() => undefined);
    if (link && this.#underWay.has(request)) this.#send(request, link);
  }

  /** A connection on which a request can be sent. */
  async #ready(now: number): Promise<Link> {
    const link = this.#link;
    if (link && now - link.usedAt < OLD_MS) {
      await turn(); // Node now reads that the connection has ended
      if (link === this.#link && link.alive()) return link;
    }
    if (link && link === this.#link) this.#retire(link);
    this.#opening ??= this.#openOrLeave().then((opened) => (this.#link ??= opened)).finally(() => (this.#opening = undefined));
    return this.#link ?? this.#opening;
  }

  async #open(): Promise<Link> {
    if (this.#closed) throw this.#error;
    const late = new AbortController();
    const connection = await this.#inTime('connection', this.#options.open(this.#timeoutMs, late.signal)).catch((error: unknown) => {
      late.abort();
      throw error;
    });
    const link = Object.assign(connection, { usedAt: performance.now(), underWay: 0, answered: false, retired: false });
    this.#links.add(link);
    if (this.#closed) this.#end(link);
    return link;
  }

  async #inTime<T>(what: string, promise: Promise<T>, ms = this.#timeoutMs): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => (timer = setTimeout(() => reject(new Error(`no ${what} within ${this.#timeoutMs} ms`)), ms).unref()));
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }

  #send(request: Request, link: Link): void {
    request.link = link;
    link.underWay += 1;
    link.usedAt = request.at;
    link.send(request.words).then(
      (reply) => this.#arrived(request, link) && request.resolve(reply),
      (error: unknown) => (isReply(error) && !TOO_MANY.test(error.message) ? this.#refused(request, link, error) : this.#lost(request, link, error)),
    );
  }

  /** A reply: is its request still under way? */
  #arrived(request: Request, link: Link): boolean {
    this.#settle(link);
    if (!this.#underWay.has(request)) return false;
    this.#replies += 1;
    link.answered = true;
    this.#done(request);
    return true;
  }

  #refused(request: Request, link: Link, error: Error): void {
    if (!this.#arrived(request, link)) return;
    request.reject(error);
    if (!DEMOTED.has(codeOf(error)!) || performance.now() - this.#demotedAt < IDLE_MS) return;
    this.#demotedAt = performance.now();
    this.#retire(link);
  }

  /** The connection has ended without a reply. */
  #lost(request: Request, link: Link, error: unknown): void {
    this.#settle(link);
    if (!this.#underWay.has(request)) return;
    if (!link.answered) return this.#leave(error);
    this.#retire(link);
    if (request.repeatable) {
      request.repeatable = false;
      return void this.#sendLater(request);
    }
    this.#done(request);
    request.reject(error);
  }

  /** A command of the connection has its outcome. */
  #settle(link: Link): void {
    link.underWay -= 1;
    if (link.retired && link.underWay === 0) this.#end(link);
  }

  #done(request: Request): void {
    this.#underWay.delete(request);
    if (this.#underWay.size === 0) this.#timer?.unref();
  }

  /** No further request uses the connection. */
  #retire(link: Link): void {
    link.retired = true;
    if (this.#link === link) this.#link = undefined;
    if (link.underWay === 0) this.#end(link);
  }

  #end(link: Link): void {
    this.#links.delete(link);
    link.close();
  }

  #lookAfter(ms: number): void {
    this.#due = performance.now() + ms;
    this.#timer = setTimeout(() => setImmediate(() => this.#look()), ms); // replies that have arrived are read first
  }

  /** Looks at the oldest requests: are they late? */
  #look(): void {
    this.#timer = undefined;
    const now = performance.now();
    const wasBusy = now - this.#due > BUSY_MS;
    for (const request of this.#underWay) {
      const leftMs = request.at + this.#timeoutMs - now;
      const halfMs = leftMs - this.#timeoutMs / 2;
      if (leftMs > 0) {
        if (halfMs <= 0 && request.before === this.#replies) void this.#probe().catch(() => {});
        return this.#lookAfter(halfMs > 0 ? halfMs : leftMs);
      }
      if (wasBusy && request.spared++ < SPARED) return this.#lookAfter(this.#timeoutMs / SPARED);
      const error = new Error(`no reply within ${this.#timeoutMs} ms`);
      this.#done(request);
      request.reject(error);
      if (request.link) this.#retire(request.link);
      if (request.before === this.#replies) return this.#leave(error);
    }
  }

  /** Asks on another connection whether the node is silent. If it is not, further requests use that connection. */
  #probe(): Promise<unknown> {
    this.#question ??= this.#openAndAsk().finally(() => (this.#question = undefined));
    return this.#question;
  }

  async #openAndAsk(): Promise<void> {
    const began = performance.now();
    const link = await this.#open();
    const reply = link.send(['PING']).catch((error: unknown) => {
      if (!isReply(error) || TOO_MANY.test(error.message)) throw error;
    });
    await this.#inTime('reply', reply, Math.max(1, began + this.#timeoutMs - performance.now())).catch((error: unknown) => {
      this.#end(link);
      throw error;
    });
    link.answered = true;
    this.#replies += 1;
    if (this.#link) this.#retire(this.#link);
    this.#link = link;
  }

  /** The node goes away. */
  #leave(error: unknown): void {
    if (this.#away || this.#closed) return;
    this.#away = true;
    this.#drop(error);
    this.#options.tell(true, this.name, error);
    if (performance.now() - this.#backAt >= AGAIN_MS) this.#pause = 0;
    void this.#comeBack();
  }

  /** Ends the connections, and all that is under way. */
  #drop(error: unknown): void {
    this.#error = error;
    this.#link = undefined;
    for (const link of this.#links) this.#end(link);
    this.#spare.clear();
    const requests = [...this.#underWay];
    for (const request of requests) this.#done(request);
    for (const { reject } of requests) reject(error);
    for (const reject of this.#waiting) reject(error);
  }

  async #comeBack(): Promise<void> {
    for (let last = performance.now(); this.#away; ) {
      const ms = PAUSES_MS[this.#pause]! * (1 + Math.random() / 4);
      this.#pause = Math.min(this.#pause + 1, PAUSES_MS.length - 1);
      await sleep(Math.max(0, last + ms - performance.now()), undefined, { ref: false });
      last = performance.now();
      await this.#options.beforeProbe?.().catch(() => {});
      if (!this.#away) return;
      const failed = await this.#probe().then(() => undefined, (error: unknown) => error);
      if (!this.#away) return;
      if (failed) this.#error = failed;
      else {
        this.#away = false;
        this.#backAt = performance.now();
        this.#options.tell(false, this.name, this.#error);
      }
    }
  }
}
