import { Saturated } from './errors.js';
import { onceAMinute } from './notices.js';
import { isOutage, named } from './outage.js';
import { deciding, type Report, type RuleReport } from './replies.js';

/**
 * Which header fields to send: those of draft-ietf-httpapi-ratelimit-headers-11; `X-RateLimit-*`, in seconds from now; or only
 * `Retry-After`.
 */
export type Headers = 'draft-11' | 'legacy' | 'none';

/** The fields that tell a client its limits, and `Retry-After` if a wait helps. */
export function fields(report: Report, headers: Headers = 'draft-11'): Record<string, string> {
  const rules = report.rules.filter(({ shadow }) => !shadow);
  const found: Record<string, string> = {};
  const decides = deciding(report);
  if (headers === 'draft-11' && rules.length > 0) {
    found['RateLimit-Policy'] = rules.map(policy).join(', ');
    found['RateLimit'] = rules.map(state).join(', ');
  }
  if (headers === 'legacy' && decides) {
    found['X-RateLimit-Limit'] = String(decides.limit);
    found['X-RateLimit-Remaining'] = String(decides.remaining);
    if (decides.resetMs >= 0) found['X-RateLimit-Reset'] = String(seconds(decides.resetMs));
  }
  if (report.verdict !== 'allowed' && report.waitMs >= 0) {
    found['Retry-After'] = String(seconds(report.waitMs));
  }
  return found;
}

/** The status that refuses a request: 403 if its key is blocked, 429 if a rule denies it, 503 if nobody could decide. */
export function status(report: Report): 403 | 429 | 503 {
  if (report.source === 'outage') return 503;
  return report.verdict === 'blocked' ? 403 : 429;
}

/** The body that refuses a request, a problem of RFC 9457. */
export function problem(report: Report): object {
  if (report.source === 'outage') return UNAVAILABLE;
  if (report.verdict === 'blocked') return { title: 'Forbidden', status: 403 };
  return {
    type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    title: 'Too many requests',
    status: 429,
    'violated-policies': report.rules.filter(({ denies, shadow }) => denies && !shadow).map(nameOf),
  };
}

/** The body if nobody could decide. */
export const UNAVAILABLE = { title: 'Service Unavailable', status: 503 };

/** The content type of these bodies. */
export const PROBLEM_TYPE = 'application/problem+json';

/** Whole seconds, rounded up, so that a client that waits this long is not too early. */
export function seconds(ms: number): number {
  return Math.ceil(ms / 1000);
}

function policy(rule: RuleReport): string {
  if (rule.periodMs === 0) return `"${nameOf(rule)}";q=${rule.limit};qu="concurrent-requests"`;
  const window = rule.periodMs % 1000 === 0 ? `;w=${rule.periodMs / 1000}` : '';
  return `"${nameOf(rule)}";q=${rule.quota}${window}`;
}

function state(rule: RuleReport): string {
  // The time until more units remain. It is omitted if no wait helps, or if nothing is used.
  const untilMs = rule.denies ? rule.waitMs : rule.nextMs;
  const time = untilMs > 0 ? `;t=${seconds(untilMs)}` : '';
  return `"${nameOf(rule)}";r=${rule.remaining}${time}`;
}

function nameOf(rule: RuleReport): string {
  return rule.name ?? rule.rule;
}

/**
 * The part of an error that a framework may show to a client: its status, and nothing of the key, the rules or the
 * server. Express and Fastify send `headers` too. `cause` is the error.
 */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: 500 | 503;
  readonly statusCode: 500 | 503;
  readonly headers: Readonly<Record<string, string>>;

  constructor(cause: unknown, undecided: boolean) {
    super(undecided ? 'Service Unavailable' : 'Internal Server Error', { cause });
    this.status = this.statusCode = undecided ? 503 : 500;
    this.headers = undecided ? { 'Retry-After': '1' } : {};
    this.stack = `${this.name}: ${this.message}`; // Express shows the stack in development
  }
}

/** `hide` for a store of another library, which answers an outage with status 500. */
export function hideInStore(error: unknown): never {
  return hide(error, false);
}

/** Throws what may be shown of an error, and logs the rest. An outage becomes a 503, since nobody could decide. */
export function hide(error: unknown, undecided = true): never {
  if (isOutage(error)) {
    if (onceAMinute(named(error))) console.warn(`redis-ratelimit: a request is refused, the server gives no decision: ${named(error)}`);
  } else if (!(error instanceof Saturated) && onceAMinute(String(error))) console.error('redis-ratelimit: a request failed:', error);
  throw new HttpError(error, error instanceof Saturated || (undecided && isOutage(error)));
}
