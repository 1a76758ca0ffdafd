/** A process that was busy through one slice has looked at its sockets in the others. */
const SLICES = 5;
/** So many slices more do not count if the process is busy in them: it is its own work that takes so long. */
const BUSY_SLICES = 20;
const BUSY = 0.7;
const SAMPLE_MS = 20;

/**
 * Calls `late` after `ms` milliseconds, unless what it returns is called first. A process that is too busy to read is not
 * counted as a server that is silent: a slice ends late then, and replies that have arrived are read before `late`.
 */
export function patience(ms: number, late: () => void, busySlices = 0): () => void {
  let left = SLICES;
  let more = busySlices;
  let last: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    if (more > 0 && isBusy()) more -= 1;
    else left -= 1;
    if (left > 0) timer.refresh();
    else last = setImmediate(late);
  }, ms / SLICES);
  return () => {
    clearTimeout(timer);
    clearImmediate(last);
  };
}

let sample = { at: performance.now(), used: performance.eventLoopUtilization(), busy: false };

/** Whether this process had few pauses lately. */
function isBusy(): boolean {
  const at = performance.now();
  if (at - sample.at >= SAMPLE_MS) {
    const used = performance.eventLoopUtilization();
    sample = { at, used, busy: performance.eventLoopUtilization(used, sample.used).utilization > BUSY };
  }
  return sample.busy;
}

/**
 * Rejects if nothing comes in time, five times as long in a process that is busy all the while, or when someone calls the function
 * that stands in `waiting` meanwhile.
 */
export function within<T>(ms: number, promise: Promise<T>, waiting?: Set<(error: unknown) => void>): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = patience(ms, () => {
      waiting?.delete(reject);
      reject(new Error(`no reply within ${ms} ms`));
    }, BUSY_SLICES);
    waiting?.add(reject);
    const done = <T>(settle: (outcome: T) => void) => (outcome: T) => {
      stop();
      waiting?.delete(reject);
      settle(outcome);
    };
    promise.then(done(resolve), done(reject));
  });
}
