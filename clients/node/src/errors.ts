import type { Reply } from './replies.js';

/** A hold was denied. */
export class Denied extends Error {
  override readonly name = 'Denied';
  readonly reply: Reply;

  /** The error's message has no key, since a framework may show it to a client. */
  constructor(reply: Reply) {
    super(`${reply.verdict}${reply.waitMs > 0 ? `, wait ${reply.waitMs} ms` : ''}`);
    this.reply = reply;
  }
}

/**
 * This process has more commands than its limiter sends at once, so one waited too long for a place. The error says nothing about
 * the server.
 */
export class Saturated extends Error {
  override readonly name = 'Saturated';
}
