import type { NextFunction, Request, RequestHandler, Response } from 'express';

import { guard, type GuardOptions, type Limits } from './guard.js';
import { HttpError, problem, PROBLEM_TYPE, status, UNAVAILABLE } from './http.js';
import type { RateLimiter } from './limiter.js';
import type { Report } from './replies.js';

export interface RateLimitOptions extends GuardOptions<Request> {
  /** Answers a request that was refused: by default 429, 403 or 503 with a problem of RFC 9457. */
  refuse?: (report: Report, req: Request, res: Response, next: NextFunction) => void;
}

/**
 * A middleware that lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After. Handlers
 * find the report in `res.locals.rateLimit`. An error of the limiter is passed on as an `HttpError`, which shows
 * nothing to a client.
 */
export function rateLimit(limiter: RateLimiter, limits: Limits<Request>, options: RateLimitOptions = {}): RequestHandler {
  const ask = guard(limiter, limits, options);
  const { refuse = answer } = options;
  const decide = async (req: Request, res: Response, next: NextFunction): Promise<void> => {
    const report = await ask(req, res, (fields) => {
      for (const [name, value] of Object.entries(fields)) res.append(name, value);
    });
    res.locals.rateLimit = report;
    if (report && report.verdict !== 'allowed') return refuse(report, req, res, next);
    next();
  };
  return (req, res, next) => {
    // Express 4 catches nothing.
    decide(req, res, next).catch((error: unknown) => {
      if (!(error instanceof HttpError && error.status === 503)) return next(error);
      res.status(503).set(error.headers).type(PROBLEM_TYPE).json(UNAVAILABLE);
    });
  };
}

function answer(report: Report, _req: Request, res: Response): void {
  res.status(status(report)).type(PROBLEM_TYPE).json(problem(report));
}
