import { setTimeout as sleep } from 'node:timers/promises';

import type { ErrorRequestHandler, NextFunction, Request, RequestHandler, Response } from 'express';

import { fields, problem, PROBLEM_TYPE, status } from './http.js';
import type { Limit, RateLimiter, Report } from './limiter.js';

/** What a request must keep to. Several limits are decided at once: all of them consume, or none. */
export type Limits = (req: Request) => Limit | Limit[] | Promise<Limit | Limit[]>;

export interface RateLimitOptions {
  /** What a request costs: 1 by default. */
  cost?: (req: Request) => number;
  /** Answers a request that was refused: by default 429 or 403 with a problem of RFC 9457. */
  refuse?: (report: Report, req: Request, res: Response, next: NextFunction) => void;
  /** Decides what happens if the server cannot be asked: by default `next(error)`. `next()` lets the request pass. */
  onError?: ErrorRequestHandler;
}

/**
 * A middleware that lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After. Handlers
 * find the report in `res.locals.rateLimit`.
 */
export function rateLimit(limiter: RateLimiter, limits: Limits, options: RateLimitOptions = {}): RequestHandler {
  const { cost = () => 1, refuse = answer, onError = pass } = options;
  const decide = async (req: Request, res: Response, next: NextFunction): Promise<void> => {
    const wanted = [await limits(req)].flat();
    let report: Report;
    try {
      report = await limiter.checkAll(wanted, { cost: cost(req) });
    } catch (error) {
      return onError(error, req, res, next);
    }
    res.locals.rateLimit = report;
    for (const [name, value] of Object.entries(fields(report))) res.append(name, value);
    if (report.verdict !== 'allowed') return refuse(report, req, res, next);
    if (report.waitMs > 0) await sleep(report.waitMs); // its turn under a `leaky` rule
    next();
  };
  return (req, res, next) => {
    decide(req, res, next).catch(next); // which Express 4 does not do
  };
}

function answer(report: Report, _req: Request, res: Response): void {
  res.status(status(report)).type(PROBLEM_TYPE).json(problem(report));
}

function pass(error: unknown, _req: Request, _res: Response, next: NextFunction): void {
  next(error);
}
