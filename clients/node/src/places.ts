import { Saturated } from './errors.js';

/** The line is made shorter once this number of its first callers, and at least half of all, have left it. */
const GONE = 1024;

/** Places for commands under way. A command that finds none waits in line, for at most `queueMs`. */
export class Places {
  readonly #queueMs: number;
  #free: number;
  /** Those who wait: each function lets one enter, and says whether that one still waits. */
  #line: (() => boolean)[] = [];
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
      let waits = true;
      const timer = setTimeout(() => setImmediate(() => {
        if (!waits) return;
        waits = false;
        reject(saturated());
      }), this.#queueMs);
      this.#line.push(() => {
        clearTimeout(timer);
        resolve();
        return waits && !(waits = false);
      });
    });
  }

  leave(): void {
    while (this.#first < this.#line.length) {
      const entered = this.#line[this.#first++]!();
      if (this.#first >= GONE && this.#first * 2 >= this.#line.length) {
        this.#line = this.#line.slice(this.#first);
        this.#first = 0;
      }
      if (entered) return;
    }
    this.#line = [];
    this.#first = 0;
    this.#free += 1;
  }
}
