/** A process that was busy through one slice has looked at its sockets in the others. */
const SLICES = 5;

/**
 * Calls `late` after `ms` milliseconds, unless what it returns is called first. A process that is too busy to read is not
 * counted as a server that is silent: a slice ends late then, and replies that have arrived are read before `late`.
 */
export function patience(ms: number, late: () => void): () => void {
  let left = SLICES;
  let last: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    left -= 1;
    if (left > 0) timer.refresh();
    else last = setImmediate(late);
  }, ms / SLICES);
  return () => {
    clearTimeout(timer);
    clearImmediate(last);
  };
}

/** Rejects if nothing comes in time, or when someone calls the function that stands in `waiting` meanwhile. */
export function within<T>(ms: number, promise: Promise<T>, waiting?: Set<(error: unknown) => void>): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = patience(ms, () => {
      waiting?.delete(reject);
      reject(new Error(`no reply within ${ms} ms`));
    });
    waiting?.add(reject);
    const done = () => {
      stop();
      waiting?.delete(reject);
    };
    promise.finally(done).then(resolve, reject);
  });
}
