// What an upstream's answer says of its limits. Fields that make no sense are ignored.

/** The headers of an answer: of `fetch`, of Node's `http`, a Map, or an object. */
export type AnswerHeaders =
  | { forEach(see: (value: string, name: string) => void): void }
  | Iterable<readonly [string, string]>
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** The longest pause, 366 days. A reset above that is a Unix time; any other value above it is a mistake. */
const LONGEST_S = 366 * 86_400;

const NUMBER = /^\s*\d{1,12}(\.\d*)?\s*$/;
const DAY = '(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)';
const MONTH = '(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)';
const TIME = '\\d\\d:\\d\\d:\\d\\d';
/** The forms of a date in RFC 9110, 5.6.7: the preferred one, that of RFC 850, and that of asctime in C, which names no zone. */
const ZONED = new RegExp(`^(?:${DAY}, (\\d\\d) ${MONTH} \\d{4}|[A-Z][a-z]+day, (\\d\\d)-${MONTH}-\\d\\d) ${TIME} (?:GMT|\\+0000)$`);
const ZONELESS = new RegExp(`^${DAY} ${MONTH} ([ \\d]\\d) ${TIME} \\d{4}$`);
/** A parameter of `RateLimit: "name";r=12;t=30`: what remains, or the seconds until more does. */
const PARAMETER = /;\s*([rt])=(\d{1,12})(?=\s*(?:;|$))/g;

/** The header fields by lower-case name; fields of one name are joined. */
export function fieldsOf(headers: AnswerHeaders): Map<string, string> {
  const found = new Map<string, string>();
  for (const [name, value] of pairs(headers)) {
    const [lower, text] = [name.toLowerCase(), [value ?? []].flat().join(', ')];
    found.set(lower, found.has(lower) ? `${found.get(lower)}, ${text}` : text);
  }
  return found;
}

function pairs(headers: AnswerHeaders): Iterable<readonly [string, string | readonly string[] | undefined]> {
  if (Symbol.iterator in headers) return headers as Iterable<readonly [string, string]>;
  if (typeof headers.forEach !== 'function') return Object.entries(headers as Record<string, string>);
  const found: [string, string][] = [];
  headers.forEach((value, name) => found.push([name, value]));
  return found;
}

/** Statuses by which an upstream refuses a request; 403 only with a field that says for how long. */
const REFUSALS = new Set([403, 429, 503, 529]);

/** How long no caller should ask: what `Retry-After` of a refusal says, else the reset of the window that has 0 left. */
export function pauseMs(status: number, told: ReadonlyMap<string, string>, nowMs: number): number {
  if (!REFUSALS.has(status)) return 0;
  const nowS = dateS(told.get('date')) ?? nowMs / 1000;
  const s = waitS(told.get('retry-after') ?? '', nowS) ?? resetS(status, told, nowS);
  return s > 0 && s <= LONGEST_S ? Math.ceil(s * 1000) : 0;
}

/** How many units remain: the field's number, or the least `r=` of a RateLimit. */
export function unitsOf(text = ''): number | undefined {
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

/**
 * The longest reset of the windows that have 0 left: `t=` beside `r=0`, or the field whose name has `reset` for `remaining`. A 429
 * that says nowhere how many units are left means `RateLimit-Reset` or `X-RateLimit-Reset`.
 */
function resetS(status: number, told: ReadonlyMap<string, string>, nowS: number): number {
  const windows = items(told.get('ratelimit')).map(({ r, t }) => ({ left: r, s: t }));
  for (const [name, text] of told) {
    if (name.includes('remaining')) windows.push({ left: unitsOf(text), s: secondsIn(told.get(name.replace('remaining', 'reset')), nowS) });
  }
  const known = windows.filter(({ left }) => left !== undefined);
  if (known.length > 0) return Math.max(0, ...known.map(({ left, s }) => (left === 0 && s !== undefined ? s : 0)));
  return (status === 429 && secondsIn(told.get('ratelimit-reset') ?? told.get('x-ratelimit-reset'), nowS)) || 0;
}

/** Seconds from now on, or a Unix time. */
function secondsIn(text = '', nowS: number): number | undefined {
  if (!NUMBER.test(text)) return undefined;
  return Number(text) <= LONGEST_S ? Number(text) : Number(text) - nowS;
}

function items(text = ''): { r?: number; t?: number }[] {
  const unquoted = text.replace(/"[^"]*"/g, '').split(',');
  return unquoted.map((item) => Object.fromEntries(Array.from(item.matchAll(PARAMETER), ([, name, n]) => [name, Number(n)])));
}

/** The Unix time of a date. */
function dateS(given = ''): number | undefined {
  const text = given.trim();
  const zoned = ZONED.exec(text);
  const date = new Date(zoned ? text : `${text} GMT`);
  const day = Number((zoned ?? ZONELESS.exec(text))?.slice(1).find(Boolean));
  return date.getUTCDate() === day ? date.getTime() / 1000 : undefined; // another day: there is no such day in that month
}
