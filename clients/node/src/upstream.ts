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
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const MONTH = `(?<month>${MONTHS.join('|')})`;
const TIME = '(?<hour>[01]\\d|2[0-3]):(?<minute>[0-5]\\d):(?<second>[0-5]\\d)';
/** The forms of a date in RFC 9110, 5.6.7: the preferred one, that of RFC 850, and that of asctime in C. */
const DATES = [
  `${DAY}, (?<day>\\d\\d) ${MONTH} (?<year>\\d{4}) ${TIME} (?:GMT|\\+0000)`,
  `(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?<day>\\d\\d)-${MONTH}-(?<year>\\d\\d) ${TIME} (?:GMT|\\+0000)`,
  `${DAY} ${MONTH} (?<day>[ \\d]\\d) ${TIME} (?<year>\\d{4})`,
].map((form) => new RegExp(`^${form}$`));
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

/** How long no caller should ask: what `Retry-After` of a 429 or 503 says, else the reset of a 429. */
export function pauseMs(status: number, told: ReadonlyMap<string, string>, nowMs: number): number {
  const nowS = dateS(told.get('date'), nowMs) ?? nowMs / 1000;
  const asked = status === 429 || status === 503 ? waitS(told.get('retry-after') ?? '', nowS) : undefined;
  const s = asked ?? (status === 429 ? resetS(told, nowS) : 0);
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
  const date = dateS(text, nowS * 1000);
  return date === undefined ? undefined : date - nowS;
}

/** `t=` of a limit that is used up, else `RateLimit-Reset` or `X-RateLimit-Reset`: seconds, or a Unix time. */
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

/** The Unix time of a date. One whose year has two digits lies at most 50 years ahead. */
function dateS(text = '', nowMs: number): number | undefined {
  const parts = DATES.map((form) => form.exec(text.trim())?.groups).find(Boolean);
  if (!parts) return undefined;
  const [day, hour, minute, second, given] = ['day', 'hour', 'minute', 'second', 'year'].map((name) => Number(parts[name])) as Five;
  const month = MONTHS.indexOf(parts.month!);
  const last = new Date(nowMs).getUTCFullYear() + 50;
  const year = parts.year!.length === 2 ? last - ((((last - given) % 100) + 100) % 100) : given;
  const date = new Date(0);
  date.setUTCFullYear(year, month, day);
  if (date.getUTCDate() !== day) return undefined; // no such day in that month
  return date.setUTCHours(hour, minute, second) / 1000;
}

type Five = [number, number, number, number, number];
