// ioredis as the tests of @fastify/rate-limit require it: their server is not on its usual port.

const { Redis } = require('ioredis');

module.exports = class extends Redis {
  constructor(options) {
    super({ ...options, port: Number(process.env.PORT) });
  }
};
