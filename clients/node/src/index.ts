export { network } from './address.js';
export { Denied, Hold, type SettleOptions } from './hold.js';
export { fields, type Headers, problem, PROBLEM_TYPE, status } from './http.js';
export { Lease, type LeaseOptions, type Taken } from './lease.js';
export * from './limiter.js';
export type { Reply, Report, RuleReport, Source, Verdict } from './replies.js';
export type { Connection, Send, Server } from './server.js';
export type { AnswerHeaders } from './upstream.js';
