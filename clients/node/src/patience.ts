/** The number of slices of a time-out. A process that was busy during one slice has read its sockets in the others. */
const SLICES = 5;
/** The most slices that are not counted because the process was busy with its own work. */
const BUSY_SLICES = 20;
const BUSY = 0.7;
const SAMPLE_MS = 20;

/**
 * Calls `late` after `ms` milliseconds, unless the returned function is called first. If the process is too busy to read, the
 * server does not count as silent: slices then end late, and replies that have arrived are read before `late` is called.
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

/** Whether this process has hardly been idle lately. */
function isBusy(): boolean {
  const at = performance.now();
  if (at - sample.at >= SAMPLE_MS) {
    const used = performance.eventLoopUtilization();
    sample = { at, used, busy: performance.eventLoopUtilization(used, sample.used).utilization > BUSY };
  }
  return sample.busy;
}

/**
 * Rejects if the promise does not settle within `ms`, or five times that in a constantly busy process. Meanwhile
 * `waiting` has a function that rejects at once.
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
