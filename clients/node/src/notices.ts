import { adviceOn, named } from './outage.js';
import type { Source, Verdict } from './replies.js';

/** A node has gone away, or is back. */
export interface OutageEvent {
  away: boolean;
  /** The server, or the node of a cluster: its host and port. */
  node: string;
  /** The last outage. */
  error: unknown;
  /** How many requests got no decision from the server since it went away. */
  answered: number;
}

/** A server answers and does not limit: it lacks the module, or refuses this client. */
export interface MisconfiguredEvent {
  error: Error;
  /** What to do about it. */
  advice: string;
  /** How many requests got no decision from the server since the last such event. */
  answered: number;
}

/** The answer to a check. */
export interface DecisionEvent {
  source: Source;
  verdict: Verdict;
  /** The name of the rule that decided, or else its text, if the answer says which rule did. */
  rule: string | undefined;
  ms: number;
}

export interface NoticeOptions {
  /** Called when a node goes away, and when it is back. Without it: a warning on the console. */
  onOutage?: (event: OutageEvent) => void;
  /** Called at once when the server does not limit, and then once a minute while that lasts. Without it: an error on the console. */
  onMisconfigured?: (event: MisconfiguredEvent) => void;
  /** Called after each check that got an answer. It has neither the key nor the cost. */
  onDecision?: (event: DecisionEvent) => void;
}

const MINUTE_MS = 60_000;
const MOST_TEXTS = 100;
const logged = new Map<string, number>();

/** Whether a text was not logged in the last minute: a line for each request would fill the log. */
export function onceAMinute(text: string): boolean {
  const now = performance.now();
  if (now < (logged.get(text) ?? -MINUTE_MS) + MINUTE_MS) return false;
  if (logged.size >= MOST_TEXTS) logged.clear();
  logged.set(text, now);
  return true;
}

/** Tells the application, or the console if there is no listener, about the server. No line on the console has a key or a rule. */
export class Notices {
  /** How many requests got no decision from the server. */
  answered = 0;
  readonly #options: NoticeOptions;
  readonly #sinceAway = new Map<string, number>();
  #sinceTold = 0;
  /** When each code was reported last. */
  readonly #told = new Map<string, number>();

  constructor(options: NoticeOptions) {
    this.#options = options;
  }

  outage(away: boolean, node: string, error: unknown): void {
    if (away) this.#sinceAway.set(node, this.answered);
    const answered = this.answered - this.#sinceAway.get(node)!;
    if (!away) this.#sinceAway.delete(node);
    const { onOutage } = this.#options;
    if (onOutage) return void heard(() => onOutage({ away, node, error, answered }));
    const text = away ? `is away: ${named(error)}` : `is back; ${answered} requests were answered without it`;
    console.warn(`redis-ratelimit: ${node} ${text}`);
  }

  decision(event: DecisionEvent): void {
    void heard(() => this.#options.onDecision!(event));
  }

  misconfigured(now: number, error: Error): void {
    const code = named(error);
    if (now < (this.#told.get(code) ?? -MINUTE_MS) + MINUTE_MS) return;
    this.#told.set(code, now);
    const answered = this.answered - this.#sinceTold;
    this.#sinceTold = this.answered;
    const advice = adviceOn(error);
    const { onMisconfigured } = this.#options;
    if (onMisconfigured) return void heard(() => onMisconfigured({ error, advice, answered }));
    console.error(`redis-ratelimit: the server does not limit (${code}): ${advice}; ${answered} requests were answered without it`);
  }
}

/** Calls a listener. An error in the listener ends no request. */
async function heard(tell: () => unknown): Promise<void> {
  try {
    await tell();
  } catch (error) {
    console.error('redis-ratelimit: a listener failed:', error);
  }
}
