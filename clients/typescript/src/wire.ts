// The names of the wire are in snake_case, some with a $; those of this package are not.

type Fields = Record<string, unknown>;

/** A name of the wire as this package has it. */
export type Camel<Name extends string> = Name extends `$${infer Rest}`
  ? Camel<Rest>
  : Name extends `${infer Head}_${infer Rest}`
    ? `${Head}${Capitalize<Camel<Rest>>}`
    : Name;

/** The type of an object of the wire under this package's names. What is in data and meta stays as it is. */
export type FromWire<T> = T extends readonly (infer Item)[]
  ? FromWire<Item>[]
  : T extends object
    ? { [Name in keyof T as Camel<Name & string>]: Name extends "data" | "meta" ? T[Name] : FromWire<T[Name]> }
    : T;

/** A translation of names that remembers up to 1000 of them. */
function remembered(translate: (name: string) => string): (name: string) => string {
  const names = new Map<string, string>();
  return (name) => {
    let known = names.get(name);
    if (known === undefined) {
      known = translate(name);
      if (names.size < 1000) {
        names.set(name, known);
      }
    }
    return known;
  };
}

const snake = remembered((name) => name.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase()));
const camel = remembered((name) => name.replace(/^\$/, "").replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase()));

/** The fields of an object under their names on the wire; what is undefined is left out. */
export function toWire(fields: object): Fields {
  const out: Fields = {};
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) {
      out[snake(name)] = value;
    }
  }
  return out;
}

/** An answer under this package's names. What is in data and meta is the user's and stays as it is. */
export function fromWire(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(fromWire);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const out: Fields = {};
  for (const name of Object.keys(value)) {
    const v = (value as Fields)[name];
    out[camel(name)] = typeof v !== "object" || name === "data" || name === "meta" ? v : fromWire(v);
  }
  return out;
}
