import { adviceOn, named } from './outage.js';

/** The limiter has stopped asking the server (`away`), or asks it again. */
export interface OutageEvent {
  away: boolean;
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

export interface NoticeOptions {
  /**
   * Called when the limiter stops asking the server after three outages in a row, and when it asks again. Without it: a
   * warning on the console.
   */
  onOutage?: (event: OutageEvent) => void;
  /** Called at once when the server does not limit, and then once a minute while that lasts. Without it: an error on the console. */
  onMisconfigured?: (event: MisconfiguredEvent) => void;
}

const MINUTE_MS = 60_000;

/** Tells the application, or the console if there is no listener, about the server. No line on the console has a key or a rule. */
export class Notices {
  /** How many requests got no decision from the server. */
  answered = 0;
  readonly #options: NoticeOptions;
  #sinceAway = 0;
  #sinceTold = 0;
  /** When each code was reported last. */
  readonly #told = new Map<string, number>();

  constructor(options: NoticeOptions) {
    this.#options = options;
  }

  outage(away: boolean, error: unknown): void {
    if (away) this.#sinceAway = this.answered;
    const answered = this.answered - this.#sinceAway;
    const { onOutage } = this.#options;
    if (onOutage) return void heard(() => onOutage({ away, error, answered }));
    const text = away ? `stops asking the server: ${named(error)}` : `asks the server again; ${answered} requests were answered without it`;
    console.warn(`redis-ratelimit: ${text}`);
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
