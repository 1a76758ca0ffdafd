// An ioredis client that waits in line, for ioredis.rs.
//
//     ioredis.js PORT KEY OPTIONS        OPTIONS: options of ioredis, as JSON
//
// Prints the verdict, or the message of the error. Keeps its connection until its input ends.

const { Redis } = require("ioredis");

const [port, key, options] = process.argv.slice(2);
const client = new Redis(Number(port), JSON.parse(options));
client.on("error", () => {}); // ioredis connects again by itself.
client.call("RL.WAIT", key, 20_000, "HOLD", key, "EX", 100, "slots:1").then(
  ([verdict]) => console.log(verdict),
  (error) => console.log(error.message),
);
process.stdin.resume();
process.stdin.on("end", () => client.disconnect());
