import type { FastifyReply, FastifyRequest } from 'fastify';

import { guard, type GuardOptions, type Limits } from './guard.js';
import { HttpError, problem, PROBLEM_TYPE, status, UNAVAILABLE } from './http.js';
import type { RateLimiter } from './limiter.js';
import type { Report } from './replies.js';

export interface RateLimitOptions extends GuardOptions<FastifyRequest> {
  /** Answers a request that was refused: by default 429, 403 or 503 with a problem of RFC 9457. */
  refuse?: (report: Report, request: FastifyRequest, reply: FastifyReply) => unknown;
}

/**
 * A hook that lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After. It throws an
 * error of the limiter as an `HttpError`, which shows nothing to a client.
 */
export function rateLimit(limiter: RateLimiter, limits: Limits<FastifyRequest>, options: RateLimitOptions = {}) {
  const ask = guard(limiter, limits, options);
  const { refuse = answer } = options;
  return async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    try {
      const report = await ask(request, reply.raw, (fields) => reply.headers(fields));
      return report && report.verdict !== 'allowed' ? refuse(report, request, reply) : undefined;
    } catch (error) {
      if (!(error instanceof HttpError && error.status === 503)) throw error;
      return reply.code(503).headers(error.headers).type(PROBLEM_TYPE).send(UNAVAILABLE);
    }
  };
}

function answer(report: Report, _request: FastifyRequest, reply: FastifyReply): FastifyReply {
  return reply.code(status(report)).type(PROBLEM_TYPE).send(problem(report));
}
