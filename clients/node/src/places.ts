import { patience } from './patience.js';

/**
 * This process has more commands than its limiter sends at once, so one waited too long for a place. The error says nothing about
 * the server.
 */
export class Saturated extends Error {
  override readonly name = 'Saturated';
}

interface Waiter {
  enter: () => void;
  gone: boolean;
}

/** Places for commands under way. A command that finds none waits in line, for at most `queueMs`. */
export class Places {
  readonly #queueMs: number;
  #free: number;
  #line: Waiter[] = [];
  #first = 0;

  constructor(places: number, queueMs: number) {
    this.#free = places;
    this.#queueMs = queueMs;
  }

  /** Takes a place: returns `undefined` if one is free. Call `leave` afterwards. */
  take(): Promise<void> | undefined {
    if (this.#free > 0) {
      this.#free -= 1;
      return undefined;
    }
    const saturated = () => new Saturated(`no place for the command within ${this.#queueMs} ms`);
    if (this.#queueMs === 0) throw saturated();
    return new Promise((resolve, reject) => {
      const stop = patience(this.#queueMs, () => {
        waiter.gone = true;
        reject(saturated());
      });
      const enter = () => {
        stop();
        resolve();
      };
      const waiter = { enter, gone: false };
      this.#line.push(waiter);
    });
  }

  leave(): void {
    while (this.#first < this.#line.length) {
      const waiter = this.#line[this.#first++]!;
      if (!waiter.gone) return waiter.enter();
    }
    this.#line = [];
    this.#first = 0;
    this.#free += 1;
  }
}
