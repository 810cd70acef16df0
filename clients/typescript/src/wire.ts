// The names of the wire are in snake_case, some with a $; those of this package are not.

type Fields = Record<string, unknown>;

/** The fields of an object under their names on the wire; what is undefined is left out. */
export function toWire(fields: object): Fields {
  const out: Fields = {};
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) {
      out[name.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase())] = value;
    }
  }
  return out;
}

const names = new Map<string, string>();

function camel(name: string): string {
  let known = names.get(name);
  if (known === undefined) {
    known = name.replace(/^\$/, "").replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase());
    if (names.size < 1000) {
      names.set(name, known);
    }
  }
  return known;
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
  for (const [name, v] of Object.entries(value)) {
    out[camel(name)] = name === "data" || name === "meta" ? v : fromWire(v);
  }
  return out;
}
