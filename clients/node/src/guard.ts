// What the middlewares for Express and Fastify have in common.

import type { ServerResponse } from 'node:http';
import { finished } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

import { network, PREFIX } from './address.js';
import { receipt, whereRoom } from './hold.js';
import { fields, type Headers, hide } from './http.js';
import type { RateLimiter } from './limiter.js';
import { CALLBACK, type Form, inOrder, oneOf } from './options.js';
import { ignoreOutage, named } from './outage.js';
import type { Report } from './replies.js';
import { type Cost, keyOf, type Limit, list, type Rules } from './request.js';
import { BANS, fit, fitOrGiveBack, looksLikeRules, SLOTS } from './rule.js';

/** The limits of a request: rules for each client, or a function that gives keys and rules. Without rules every request passes. */
export type Limits<Request> = Rules | ((request: Request) => Limit | Limit[] | Promise<Limit | Limit[]>);

export interface GuardOptions<Request> {
  /** The key for rules that are given without one: by default `ip:` and the client's network. */
  key?: (request: Request) => string | Promise<string>;
  /** The length of the network's prefix in IPv6: 64 by default. */
  prefix?: number;
  /** What a request costs: 1 by default. */
  cost?: (request: Request) => Cost | Promise<Cost>;
  /** Requests that are not limited. */
  skip?: (request: Request) => boolean | Promise<boolean>;
  /** Which requests count: the others get their cost back when the response ends, whole or not. A status from 400 on, or none, is a failure. */
  count?: 'all' | 'failed' | 'successful';
  headers?: Headers;
}

const FORMS: Readonly<Record<string, Form>> = {
  key: CALLBACK, prefix: PREFIX, cost: CALLBACK, skip: CALLBACK, count: oneOf('all', 'failed', 'successful'),
  headers: oneOf('draft-11', 'legacy', 'none'), refuse: CALLBACK,
};
/** A request stays counted if its response takes longer. */
const RESPONSE_MS = 3_600_000;

/** Asks whether a request may pass, and waits for its turn under a `leaky` rule. `undefined`: the request is not limited. */
export function guard<Request extends { readonly ip?: string | undefined }>(
  limiter: RateLimiter,
  limits: Limits<Request>,
  options: GuardOptions<Request>,
) {
  inOrder('rateLimit', options, FORMS);
  const { prefix = 64, cost = () => 1, skip, count = 'all', headers } = options;
  const unfit = count === 'all' ? [SLOTS] : [SLOTS, BANS];
  if (typeof limits !== 'function') {
    looksLikeRules(limits);
    fit(list(limits), unfit);
    limiter.testRules(list(limits));
  }
  if (count !== 'all') limiter.needModule(`count: '${count}'`);
  const { key = byNetwork(prefix) } = options;
  return async (request: Request, response: ServerResponse, tell: (fields: Record<string, string>) => void): Promise<Report | undefined> => {
    if (await skip?.(request)) return undefined;
    const wanted = typeof limits === 'function' ? [await limits(request)].flat() : [{ key: await key(request), rules: limits }];
    const units = await cost(request);
    const { report, hold } = await whereRoom(count === 'all' ? undefined : receipt(RESPONSE_MS), async (hold) => ({
      report: await limiter.checkAll(wanted, { cost: units, ...(hold && { hold }) }),
      hold,
    })).then(async (asked) => {
      if (asked.hold) await fitOrGiveBack(asked.report, unfit, () => settled(limiter, wanted, asked.hold!.id, true));
      return asked;
    }).catch(hide);
    tell(fields(report, headers));
    if (report.verdict !== 'allowed') return report;
    if (hold && report.source !== 'outage') {
      // Not at the head of the response: Node has no public event for that.
      finished(response, () => {
        const outcome = response.headersSent && response.statusCode < 400 ? 'successful' : 'failed';
        void settled(limiter, wanted, hold.id, outcome !== count);
      });
    }
    if (report.waitMs > 0) await sleep(report.waitMs);
    return report;
  };
}

/** Ends the hold of a request that is over. If the hold cannot be ended, the request stays counted. */
async function settled(limiter: RateLimiter, limits: readonly Limit[], id: string, refund: boolean): Promise<void> {
  const keys = new Set(limits.map(({ key }) => key));
  const ended = await Promise.allSettled([...keys].map((key) => limiter.settleWithin(RESPONSE_MS, keyOf(key), id, { refund }).catch(ignoreOutage)));
  for (const one of ended) {
    if (one.status === 'rejected') console.error(`redis-ratelimit: a request that does not count stays charged: ${named(one.reason)}`);
  }
}

/** The key of a client's network. All clients without an address share one. */
function byNetwork(prefix: number): (request: { readonly ip?: string | undefined }) => string {
  let warned = false;
  return ({ ip }) => {
    if (!ip && !warned) {
      warned = true;
      console.warn("redis-ratelimit: a client has no address, as on a Unix socket: all such clients share the limit of 'ip:unknown': set the option `key`");
    }
    return `ip:${network(ip, prefix)}`;
  };
}
