export { network } from './address.js';
export { fields, problem, PROBLEM_TYPE, status } from './http.js';
export * from './limiter.js';
