// What an upstream's answer says of its limits. What makes no sense says nothing.

/** The headers of an answer: of `fetch`, of Node's `http`, or an object. */
export type AnswerHeaders = Iterable<readonly [string, string]> | Readonly<Record<string, string | readonly string[] | undefined>>;

/** The longest pause, 366 days. Above it a reset is a Unix time, and anything else a mistake. */
const LONGEST_S = 366 * 86_400;

const NUMBER = /^\s*\d{1,12}(\.\d*)?\s*$/;
const DATE = /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*, .* GMT$/;
/** A parameter of `RateLimit: "name";r=12;t=30`: what remains, or the seconds until more does. */
const PARAMETER = /;\s*([rt])=(\d{1,12})(?=\s*(?:;|$))/g;

/** By lower-case name, those of one name joined. */
export function fieldsOf(headers: AnswerHeaders): Map<string, string> {
  const found = new Map<string, string>();
  for (const [name, value] of Symbol.iterator in headers ? headers : Object.entries(headers)) {
    const [lower, text] = [name.toLowerCase(), [value ?? []].flat().join(', ')];
    found.set(lower, found.has(lower) ? `${found.get(lower)}, ${text}` : text);
  }
  return found;
}

/** How long nobody should ask: by `Retry-After` of a 429 or 503, else by the reset of a 429. */
export function pauseMs(status: number, told: ReadonlyMap<string, string>, nowMs: number): number {
  const nowS = dateS(told.get('date')) ?? nowMs / 1000;
  const asked = status === 429 || status === 503 ? waitS(told.get('retry-after') ?? '', nowS) : undefined;
  const s = asked ?? (status === 429 ? resetS(told, nowS) : 0);
  return s > 0 && s <= LONGEST_S ? Math.ceil(s * 1000) : 0;
}

/** A number, or the least `r=` of a RateLimit. */
export function remaining(text = ''): number | undefined {
  if (/^\s*\d{1,12}\s*$/.test(text)) return Number(text);
  const left = items(text).flatMap(({ r }) => r ?? []);
  return left.length > 0 ? Math.min(...left) : undefined;
}

/** `Retry-After`: seconds, or a date. */
function waitS(text: string, nowS: number): number | undefined {
  if (NUMBER.test(text)) return Number(text);
  const date = dateS(text);
  return date === undefined ? undefined : date - nowS;
}

/** `t=` of what is used up, else `RateLimit-Reset` or `X-RateLimit-Reset`: seconds, or a Unix time. */
function resetS(told: ReadonlyMap<string, string>, nowS: number): number {
  const times = items(told.get('ratelimit')).flatMap(({ r, t }) => (r === 0 && t !== undefined ? t : []));
  if (times.length > 0) return Math.max(...times);
  const text = told.get('ratelimit-reset') ?? told.get('x-ratelimit-reset') ?? '';
  if (!NUMBER.test(text)) return 0;
  return Number(text) <= LONGEST_S ? Number(text) : Number(text) - nowS;
}

function items(text = ''): { r?: number; t?: number }[] {
  const unquoted = text.replace(/"[^"]*"/g, '').split(',');
  return unquoted.map((item) => Object.fromEntries(Array.from(item.matchAll(PARAMETER), ([, name, n]) => [name, Number(n)])));
}

function dateS(text = ''): number | undefined {
  const ms = DATE.test(text.trim()) ? Date.parse(text) : NaN;
  return Number.isNaN(ms) ? undefined : ms / 1000;
}
