/** Replies of a server that cannot serve now; docs/errors.md lists them. */
const CODES = new Set(['LOADING', 'BUSY', 'OOM', 'MISCONF', 'NOREPLICAS', 'READONLY', 'MASTERDOWN', 'CLUSTERDOWN', 'TRYAGAIN', 'UNBLOCKED']);
const TEXTS = /^ERR (max number of clients|internal error|this replica skipped)/;
/** What a client library throws at an application that calls it wrongly. */
const MISTAKES = [TypeError, RangeError, ReferenceError, SyntaxError];

/**
 * Whether an error means that the server gave no decision: no reply came, or the server cannot serve now. An error of a
 * wrong request (CROSSSLOT, NOPERM, WRONGTYPE, ...) is none. Client libraries have no base class for lost connections, so
 * whatever is neither a reply nor a mistake of the application counts as one.
 */
export function isOutage(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { lastNodeError, cause } = error as { lastNodeError?: unknown; cause?: unknown };
  const reason = lastNodeError ?? cause; // of a client of a cluster that gave up
  if (reason instanceof Error) return isOutage(reason) || /^(MOVED|ASK) /.test(reason.message);
  const [code] = /^[A-Z]+(?= |$)/.exec(error.message) ?? [];
  if (code) return CODES.has(code) || TEXTS.test(error.message);
  return !MISTAKES.some((kind) => error instanceof kind);
}

/** Throws any other error: for what need not be done while the server is away. */
export function ignoreOutage(error: unknown): void {
  if (!isOutage(error)) throw error;
}

/**
 * Rejects if nothing comes within so many milliseconds, or when the signal aborts. A reply that arrived while the process was
 * busy is read before.
 */
export function within<T>(ms: number, promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => setImmediate(() => reject(new Error(`no reply within ${ms} ms`)));
    const timer = setTimeout(late, ms);
    const abort = () => reject(signal?.reason);
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    };
    signal?.addEventListener('abort', abort);
    promise.finally(done).then(resolve, reject);
  });
}
