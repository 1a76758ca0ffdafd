import { Denied, Saturated } from './errors.js';
import { UnreadableReply } from './replies.js';

/** Replies of a server that cannot serve now; docs/reference/errors.md lists them. */
const CODES = new Set(['LOADING', 'BUSY', 'OOM', 'MISCONF', 'NOREPLICAS', 'READONLY', 'MASTERDOWN', 'CLUSTERDOWN', 'TRYAGAIN', 'UNBLOCKED']);
const TEXTS = /^ERR (max number of clients|internal error|this replica skipped)/;
/** Unknown commands that the clients send themselves: an application may misspell any other. */
const UNKNOWN = /^ERR unknown command ['`]RL\.(M?CHECK|PEEK|WAIT|SETTLE|RENEW|REFUND|RESET|PAUSE|RESUME|SYNC|INFO)\b/i;
/** A missing right to a command that is no check says nothing about checks. */
const NOT_A_CHECK = /^NOPERM .*run the 'rl\.(?!(m?check|peek|wait)')/i;
/** What to do about a server that answers and does not limit. */
const ADVICE = new Map([
  ['ERR', "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'"],
  ['NOAUTH', 'give the client the password'],
  ['WRONGPASS', 'give the client the password'],
  ['NOPERM', 'give the user the rights +@ratelimit ~keys, see SECURITY.md'],
]);
/** The right to run the script is missing. */
const RUNS_SCRIPTS = /^NOPERM .*run the 'eval/i;
const GIVE_SCRIPTS = 'give the user the rights +eval +evalsha +get +set +del +time ~keys, see clients.md';
/** The errors that client libraries throw if an application calls them wrongly. */
const MISTAKES = [TypeError, RangeError, ReferenceError, SyntaxError];

/**
 * An `outage`: no reply came, or the server cannot serve now. `misconfigured`: it has no module, or refuses this
 * client. Both mean that the server gave no decision. A `mistake`: any other error, such as CROSSSLOT or WRONGTYPE, is
 * the application's fault.
 */
export type Kind = 'outage' | 'misconfigured' | 'mistake';

/**
 * Client libraries have no base class for lost connections, so whatever is neither a reply nor a mistake of the application counts
 * as an outage.
 */
export function kindOf(error: unknown): Kind {
  if (!(error instanceof Error) || error instanceof Saturated || error instanceof Denied) return 'mistake';
  const reason = reasonOf(error);
  if (reason) {
    const kind = kindOf(reason);
    return kind === 'mistake' && /^(MOVED|ASK) /.test(reason.message) ? 'outage' : kind;
  }
  if (error instanceof UnreadableReply) return 'misconfigured';
  const code = codeOf(error);
  if (code && NOT_A_CHECK.test(error.message)) return 'mistake';
  if (code && (UNKNOWN.test(error.message) || (code !== 'ERR' && ADVICE.has(code)))) return 'misconfigured';
  if (code) return CODES.has(code) || TEXTS.test(error.message) ? 'outage' : 'mistake';
  return MISTAKES.some((kind) => error instanceof kind) ? 'mistake' : 'outage';
}

/**
 * Whether an error means that the server gave no decision: no reply came, the server cannot serve now, or it does not limit. An error
 * of a wrong request does not, nor does {@link Saturated}.
 */
export function isOutage(error: unknown): boolean {
  return kindOf(error) !== 'mistake';
}

/** Whether the request was right, but got no decision. */
export function isUndecided(error: unknown): boolean {
  return error instanceof Saturated || isOutage(error);
}

/** Whether the server ended the wait of a client in line, because an operator asked for it or it cannot serve the key any more. */
export function isUnblocked(error: unknown): boolean {
  return error instanceof Error && codeOf(error) === 'UNBLOCKED';
}

/** Ignores an outage, and throws any other error: for work that may stay undone while the server is away. */
export function ignoreOutage(error: unknown): void {
  if (!isOutage(error)) throw error;
}

/** The first word of a server's reply. Any other error has none. */
export function codeOf({ message }: Error): string | undefined {
  return /^[A-Z]+(?= |$)/.exec(message)?.[0];
}

/** Whether an error is a reply of the server. */
export function isReply(error: unknown): error is Error {
  return error instanceof Error && codeOf(error) !== undefined;
}

/** The part of an error that a log may have: of a reply only the code, because the text may have a key or a rule. */
export function named(error: unknown): string {
  if (!(error instanceof Error)) return 'an error';
  const reason = reasonOf(error);
  if (reason) return named(reason);
  if (error instanceof UnreadableReply) return 'unreadable reply';
  return codeOf(error) ?? (error.message || String((error as { code?: unknown }).code));
}

/** What to do about an error of the kind `misconfigured`. */
export function adviceOn(error: Error): string {
  const reason = reasonOf(error);
  if (reason) return adviceOn(reason);
  if (error instanceof UnreadableReply) return 'ask a server with a module of this version: something else answers';
  return RUNS_SCRIPTS.test(error.message) ? GIVE_SCRIPTS : (ADVICE.get(named(error)) ?? '');
}

/** Why a client of a cluster gave up. */
function reasonOf(error: Error): Error | undefined {
  const { lastNodeError, cause } = error as { lastNodeError?: unknown; cause?: unknown };
  const reason = lastNodeError ?? cause;
  return reason instanceof Error ? reason : undefined;
}
