import type { FastifyReply, FastifyRequest } from 'fastify';

import { guard, type GuardOptions, type Limits } from './guard.js';
import { problem, PROBLEM_TYPE, status } from './http.js';
import type { RateLimiter } from './limiter.js';
import type { Report } from './replies.js';

export interface RateLimitOptions extends GuardOptions<FastifyRequest> {
  /** Answers a request that was refused: by default 429, 403 or 503 with a problem of RFC 9457. */
  refuse?: (report: Report, request: FastifyRequest, reply: FastifyReply) => unknown;
}

/** A hook that lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After. */
export function rateLimit(limiter: RateLimiter, limits: Limits<FastifyRequest>, options: RateLimitOptions = {}) {
  const { refuse = answer } = options;
  const ask = guard(limiter, limits, options);
  return async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    const report = await ask(request, reply.raw, (fields) => reply.headers(fields));
    return report && report.verdict !== 'allowed' ? refuse(report, request, reply) : undefined;
  };
}

function answer(report: Report, _request: FastifyRequest, reply: FastifyReply): FastifyReply {
  return reply.code(status(report)).type(PROBLEM_TYPE).send(problem(report));
}
