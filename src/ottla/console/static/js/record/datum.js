// Keys and values as the server read them: text with a format. JSON keeps the digits of numbers that JavaScript would round.

/** A number that JavaScript cannot hold, as it was written. */
export class ExactNumber {
  constructor(text) {
    this.text = text;
  }
  toString() {
    return this.text;
  }
}

const STRUCTURED = new Set(["json", "msgpack", "avro", "protobuf", "json_schema", "internal"]);

function parse(text) {
  return JSON.parse(text, (_, value, context) => {
    if (typeof value !== "number" || !context?.source) return value;
    const same = String(value) === context.source || (Number.isSafeInteger(value) && Number(context.source) === value) || /[.eE]/.test(context.source);
    return same ? value : new ExactNumber(context.source);
  });
}

const parsed = new WeakMap();

/** The value of a datum for the tree: `{ok, value}`; a text that is no JSON is not ok. */
export function structure(datum) {
  if (!datum || datum.truncated || !STRUCTURED.has(datum.format)) return { ok: false };
  if (!parsed.has(datum)) {
    try {
      parsed.set(datum, { ok: true, value: parse(datum.text) });
    } catch {
      parsed.set(datum, { ok: false });
    }
  }
  return parsed.get(datum);
}

/** A datum on one line. */
export function line(datum, letters = 400) {
  if (datum === null || datum === undefined) return null;
  if (datum.format === "empty") return "";
  return datum.text.length > letters ? datum.text.slice(0, letters) + "…" : datum.text;
}

/** Indented text of a datum: JSON is laid out, other text stays. */
export function pretty(datum) {
  if (!datum) return "null";
  const { ok, value } = structure(datum);
  return ok ? layOut(value) : datum.text;
}

export function layOut(value, indent = "") {
  if (value instanceof ExactNumber) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = indent + "  ";
  const entries = Array.isArray(value)
    ? value.map((one) => inner + layOut(one, inner))
    : Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${layOut(one, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return entries.length ? `${open}\n${entries.join(",\n")}\n${indent}${close}` : open + close;
}

/** `value.customer.name`, `headers["x"]` of a record; undefined if there is none. The steps are those of the filter language. */
export function field(record, steps) {
  const [part, ...rest] = steps;
  let value;
  if (part === "headers") {
    const header = record.headers?.findLast(({ name }) => name === rest[0]);
    return header ? line(header.value) : undefined;
  }
  if (part !== "key" && part !== "value") return record[part];
  const datum = record[part];
  const found = structure(datum);
  value = found.ok ? found.value : datum?.text;
  for (const step of rest) {
    if (value === null || value === undefined || typeof value !== "object") return undefined;
    value = Array.isArray(value) && step < 0 ? value.at(step) : value[step];
  }
  return value;
}

/** "value.lines[0].sku" → ["value", "lines", 0, "sku"]; null if it is no path. */
export function steps(text) {
  const found = [];
  const part = /^(?:\.?([A-Za-z_]\w*)|\[(-?\d+)\]|\[("(?:[^"\\]|\\.)*")\])/;
  let rest = text.trim();
  while (rest) {
    const hit = part.exec(rest);
    if (!hit || (found.length === 0 && !hit[1])) return null;
    if (hit[1]) found.push(hit[1]);
    else if (hit[2]) found.push(Number(hit[2]));
    else {
      try {
        found.push(JSON.parse(hit[3]));
      } catch {
        return null;
      }
    }
    rest = rest.slice(hit[0].length);
  }
  return found.length ? found : null;
}

/** The other way: steps as the filter language writes them. */
export const spell = (list) =>
  list.map((step, i) => (i === 0 ? step : typeof step === "number" ? `[${step}]` : /^[A-Za-z_]\w*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`)).join("");

/** A value as a literal of the filter language. */
export const literal = (value) => (value === null ? "None" : value === true ? "True" : value === false ? "False" : value instanceof ExactNumber ? value.text : JSON.stringify(value));

export const shown = (value) =>
  value === undefined ? "" : value === null ? "null" : typeof value === "object" && !(value instanceof ExactNumber) ? layOut(value).replace(/\s*\n\s*/g, " ") : String(value);

export function decodeBase64(text) {
  const binary = atob(text ?? "");
  return Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
}
