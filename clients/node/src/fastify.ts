import { setTimeout as sleep } from 'node:timers/promises';

import type { FastifyReply, FastifyRequest } from 'fastify';

import { fields, problem, PROBLEM_TYPE, status } from './http.js';
import type { Limit, RateLimiter, Report } from './limiter.js';

/** What a request must keep to. Several limits are decided at once: all of them consume, or none. */
export type Limits = (request: FastifyRequest) => Limit | Limit[] | Promise<Limit | Limit[]>;

export interface RateLimitOptions {
  /** What a request costs: 1 by default. */
  cost?: (request: FastifyRequest) => number;
  /** Answers a request that was refused: by default 429 or 403 with a problem of RFC 9457. */
  refuse?: (report: Report, request: FastifyRequest, reply: FastifyReply) => unknown;
  /** Decides what happens if the server cannot be asked: by default it throws the error. To return lets the request pass. */
  onError?: (error: unknown, request: FastifyRequest, reply: FastifyReply) => unknown;
}

/** A hook that lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After. */
export function rateLimit(limiter: RateLimiter, limits: Limits, options: RateLimitOptions = {}) {
  const { cost = () => 1, refuse = answer, onError = fail } = options;
  return async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    const wanted = [await limits(request)].flat();
    let report: Report;
    try {
      report = await limiter.checkAll(wanted, { cost: cost(request) });
    } catch (error) {
      return onError(error, request, reply);
    }
    reply.headers(fields(report));
    if (report.verdict !== 'allowed') return refuse(report, request, reply);
    if (report.waitMs > 0) await sleep(report.waitMs); // its turn under a `leaky` rule
    return undefined;
  };
}

function answer(report: Report, _request: FastifyRequest, reply: FastifyReply): FastifyReply {
  return reply.code(status(report)).type(PROBLEM_TYPE).send(problem(report));
}

function fail(error: unknown): never {
  throw error;
}
