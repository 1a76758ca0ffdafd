// Options are tested when they are given: in plain JavaScript nothing else finds a misspelt one.

/** What an option may be: in words, and as a test. */
export type Form = readonly [expected: string, fits: (value: unknown) => boolean];

/** The form of each option. */
export type Forms<Options> = Readonly<Record<keyof Options, Form>>;

export const FLAG: Form = ['true or false', (value) => typeof value === 'boolean'];
export const TEXT: Form = ['a string', (value) => typeof value === 'string'];
export const CALLBACK: Form = ['a function', (value) => typeof value === 'function'];

export function oneOf(...values: string[]): Form {
  return [values.map((value) => `'${value}'`).join(' or '), (value) => values.includes(value as string)];
}

export function integer(least: number, most = Number.MAX_SAFE_INTEGER): Form {
  const words = most === Number.MAX_SAFE_INTEGER ? `an integer from ${least} on` : `an integer from ${least} to ${most}`;
  return [words, (value) => Number.isInteger(value) && (value as number) >= least && (value as number) <= most];
}

/** A time in milliseconds that a timer can keep. */
export const TIME: Form = ['milliseconds above 0, below 2^31', (value) => typeof value === 'number' && value > 0 && value < 2 ** 31];

/** Such a time, or 0. */
export const TIME_OR_0: Form = ['milliseconds from 0, below 2^31', (value) => value === 0 || TIME[1](value)];

/** A time in milliseconds for the server, which tests its bounds. */
export const SPAN: Form = ['milliseconds above 0', (value) => typeof value === 'number' && value > 0 && value < Infinity];

/** Throws a TypeError for an option that `owner` does not know, or whose value has another form. */
export function inOrder(owner: string, given: object, forms: Readonly<Record<string, Form>>): void {
  if (typeof given !== 'object' || given === null) throw new TypeError(`${owner}: the options are ${show(given)}, expected an object`);
  for (const name of Object.keys(given)) {
    const form = Object.hasOwn(forms, name) ? forms[name] : undefined;
    if (!form) throw new TypeError(`${owner}: unknown option '${name}', expected ${Object.keys(forms).join(', ')}`);
    const value = (given as Record<string, unknown>)[name];
    if (value !== undefined) mustBe(owner, name, value, form);
  }
}

/** Throws a TypeError for an argument of another form. Unlike an option, it cannot be left out. */
export function mustBe(owner: string, name: string, value: unknown, [expected, fits]: Form): void {
  if (!fits(value)) throw new TypeError(`${owner}: ${name} is ${show(value)}, expected ${expected}`);
}

/** The longest period of a rule, 366 days. */
const LONGEST_MS = 366 * 86_400_000;

/** Whole milliseconds for a rule: fractions are rounded up, and a time that no rule's period can have is an error. */
export function periodMs(name: string, ms: number): number {
  const whole = Math.ceil(ms);
  if (!(whole >= 1 && whole <= LONGEST_MS)) throw new TypeError(`${name} is ${show(ms)}, expected 1 to ${LONGEST_MS} ms`);
  return whole;
}

export function show(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : String(value);
}
