// What the middlewares for Express and Fastify have in common.

import { setTimeout as sleep } from 'node:timers/promises';

import { network } from './address.js';
import { fields, type Headers } from './http.js';
import type { RateLimiter } from './limiter.js';
import type { Report } from './replies.js';
import type { Cost, Limit, Rules } from './request.js';

/** What a request must keep to: rules for each client, or a function that gives keys and rules. No rules let pass. */
export type Limits<Request> = Rules | ((request: Request) => Limit | Limit[] | Promise<Limit | Limit[]>);

export interface GuardOptions<Request> {
  /** Whom to count by rules without keys: by default `ip:` and the client's network. */
  key?: (request: Request) => string;
  /** The length of the network's prefix in IPv6: 64 by default. */
  prefix?: number;
  /** What a request costs: 1 by default. */
  cost?: (request: Request) => Cost;
  /** Requests that are not limited. */
  skip?: (request: Request) => boolean | Promise<boolean>;
  /** Which requests count: others get back what they cost after the response. A status from 400 on is a failure. */
  count?: 'all' | 'failed' | 'successful';
  headers?: Headers;
}

/** A response of Node. */
interface Response {
  readonly statusCode: number;
  readonly writableFinished: boolean;
  once(event: 'close', listener: () => void): unknown;
}

/** Asks for a request, and waits for its turn under a `leaky` rule. `undefined`: it is not limited. */
export function guard<Request extends { readonly ip?: string | undefined }>(
  limiter: RateLimiter,
  limits: Limits<Request>,
  options: GuardOptions<Request>,
) {
  const { prefix = 64, cost = () => 1, skip, count = 'all', headers } = options;
  const { key = (request) => `ip:${network(request.ip, prefix)}` } = options;
  return async (request: Request, response: Response, tell: (fields: Record<string, string>) => void): Promise<Report | undefined> => {
    if (await skip?.(request)) return undefined;
    const wanted = typeof limits === 'function' ? [await limits(request)].flat() : [{ key: key(request), rules: limits }];
    const report = await limiter.checkAll(wanted, { cost: cost(request) });
    tell(fields(report, headers));
    if (report.verdict !== 'allowed') return report;
    if (count !== 'all') {
      response.once('close', () => {
        const outcome = response.writableFinished && response.statusCode < 400 ? 'successful' : 'failed';
        if (outcome !== count) limiter.giveBack(wanted, report).catch(() => {}); // the request is over
      });
    }
    if (report.waitMs > 0) await sleep(report.waitMs);
    return report;
  };
}
