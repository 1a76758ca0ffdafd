import { setTimeout as sleep } from 'node:timers/promises';

import { isUndecided } from './outage.js';

/** The pause between tries. */
const PAUSE_MS = 250;
/** The most settlements to try again; beyond it the oldest are given up. */
const MOST = 1000;

interface Settlement {
  id: string;
  until: number;
  settle: () => Promise<boolean>;
  /** How often the server may still answer that it knows no such hold: a command that takes it may be on its way. */
  misses: number;
}

/** Tries settlements that met an outage again, until they succeed or their holds have ended. */
export class Settler {
  readonly #settlements = new Set<Settlement>();
  #most = MOST;
  #runs = false;
  #givenUp = 0;

  /** Keeps a settlement to try after a pause. `misses`: how often to ask again for a hold that the server does not know. */
  add(id: string, leftMs: number, settle: () => Promise<boolean>, misses = 0): void {
    this.#settlements.add({ id, until: performance.now() + leftMs, settle, misses });
    this.#bound();
    if (!this.#runs) void this.#run();
  }

  /** Gives up all, and at once what comes later. */
  close(): void {
    this.#most = 0;
    this.#bound();
  }

  #bound(): void {
    for (const oldest of this.#settlements) if (this.#settlements.size > this.#most) this.#giveUp(oldest);
  }

  async #run(): Promise<void> {
    this.#runs = true;
    while (this.#settlements.size > 0) {
      await sleep(PAUSE_MS, undefined, { ref: false });
      await Promise.all([...this.#settlements].map((settlement) => this.#try(settlement)));
    }
    this.#runs = false;
  }

  async #try(settlement: Settlement): Promise<void> {
    const found = await settlement.settle().catch((error: unknown) => (isUndecided(error) ? undefined : true));
    if (found || (found === false && settlement.misses-- <= 0)) this.#settlements.delete(settlement);
    else if (performance.now() > settlement.until) this.#giveUp(settlement);
  }

  #giveUp(settlement: Settlement): void {
    if (!this.#settlements.delete(settlement)) return;
    this.#givenUp += 1;
    console.warn(`redis-ratelimit: the hold '${settlement.id}' is not settled and ends with its ttl; ${this.#givenUp} so far`);
  }
}
