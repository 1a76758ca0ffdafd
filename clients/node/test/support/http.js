// A web application on a free port until a test ends.

import { once } from 'node:events';

/** Serves an application of Express; replies with a `fetch` of its paths. */
export async function serve(t, app) {
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address();
  return (path, options) => fetch(`http://127.0.0.1:${port}${path}`, { headers: { connection: 'close' }, ...options });
}
