// JSON that keeps integers whole. JSON.parse rounds an integer beyond
// Number.MAX_SAFE_INTEGER to the nearest double without a word; here it becomes a bigint,
// and a bigint is written as the integer that it is.

/** An integer: a number as long as that is exact, a bigint beyond ±(2^53 − 1). */
export type Integer = number | bigint;

/** Parses JSON. Throws a SyntaxError if the text is none. */
export function parse(text: string): unknown {
  if (!hasDigits(text, 16)) {
    return JSON.parse(text); // no integer here can be too large
  }
  const mark = randomMark();
  const marked = markIntegers(text, mark);
  return JSON.parse(marked, (_key, value: unknown) =>
    typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value,
  );
}

/** Writes JSON. Throws a TypeError for cycles, and for what JSON has no text for at all. */
export function stringify(value: unknown): string {
  if (!("toJSON" in BigInt.prototype)) {
    try {
      const text = JSON.stringify(value) as string | undefined;
      if (text !== undefined) {
        return text; // there is no bigint in it, and so it needs no look at each value
      }
    } catch {
      // a bigint, most likely; what is wrong besides is thrown below
    }
  }
  const mark = randomMark();
  let marked = false;
  const text: string | undefined = JSON.stringify(value, function (this: Record<string, unknown>, key, replaced: unknown) {
    const own = this[key]; // a bigint with a toJSON of somebody else's would come replaced
    if (typeof own !== "bigint") {
      return replaced;
    }
    marked = true;
    return mark + own.toString();
  });
  if (text === undefined) {
    throw new TypeError("the value has no JSON");
  }
  return marked ? text.replaceAll(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1") : text;
}

/** A prefix that no string of anybody's begins with, made anew for each text. */
function randomMark(): string {
  return `weir-integer-${Math.random().toString(36).slice(2)}${Math.random().toString(36).slice(2)}:`;
}

/** Whether text has n digits in a row. One of them is at an nth place, so the others need no look. */
function hasDigits(text: string, n: number): boolean {
  const digit = (i: number) => {
    const c = text.charCodeAt(i);
    return c >= 48 && c <= 57;
  };
  for (let i = n - 1; i < text.length; i += n) {
    if (digit(i)) {
      let from = i;
      let to = i + 1;
      while (digit(from - 1)) {
        from--;
      }
      while (digit(to)) {
        to++;
      }
      if (to - from >= n) {
        return true;
      }
    }
  }
  return false;
}

const quote = 34; // "
const backslash = 92;

/** Turns each integer that a number cannot hold into a string that begins with mark. */
function markIntegers(text: string, mark: string): string {
  let out = "";
  let copied = 0;
  for (let i = 0; i < text.length; ) {
    const c = text.charCodeAt(i);
    if (c === quote) {
      i = behindString(text, i);
      continue;
    }
    if (!inNumber(c)) {
      i++;
      continue;
    }
    const start = i;
    while (i < text.length && inNumber(text.charCodeAt(i))) {
      i++;
    }
    if (i - start < 16) {
      continue;
    }
    const token = text.slice(start, i);
    if (/^-?[1-9]\d*$/.test(token) && !Number.isSafeInteger(Number(token))) {
      out += `${text.slice(copied, start)}"${mark}${token}"`;
      copied = i;
    }
  }
  return out + text.slice(copied);
}

/** The index behind the string that begins at start. */
function behindString(text: string, start: number): number {
  for (let i = start + 1; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === backslash) {
      i++;
    } else if (c === quote) {
      return i + 1;
    }
  }
  return text.length;
}

/** Whether c may stand in a number: digits, sign, point and exponent. Letters of true, false and null do no harm. */
function inNumber(c: number): boolean {
  return (c >= 48 && c <= 57) || c === 45 || c === 43 || c === 46 || c === 101 || c === 69;
}
