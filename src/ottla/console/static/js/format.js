// How figures, sizes and times are written. One way each, on every page.

const plain = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const DASH = "–";

const missing = (value) => value === null || value === undefined || Number.isNaN(value);

/** 1234567 → "1,234,567" */
export const count = (value) => (missing(value) ? DASH : plain.format(value));

/** 1234567 → "1.2M" */
export const compact = (value) => (missing(value) ? DASH : Math.abs(value) < 10000 ? plain.format(Math.round(value)) : short.format(value));

/** Per second, with as many digits as say something. */
export function rate(value, unit = "/s") {
  if (missing(value)) return DASH;
  const digits = value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return (value >= 10000 ? short.format(value) : value.toFixed(digits)) + unit;
}

export function bytes(value) {
  if (missing(value)) return DASH;
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1000 && unit < units.length - 1) [size, unit] = [size / 1000, unit + 1];
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}

export const byteRate = (value) => (missing(value) ? DASH : `${bytes(value)}/s`);

/** Seconds → "850 ms", "4.2 s", "3 m 20 s", "5 h 2 m", "3 d 4 h" */
export function duration(seconds) {
  if (missing(seconds)) return DASH;
  const size = Math.abs(seconds);
  if (size < 1) return `${Math.round(seconds * 1000)} ms`;
  if (size < 60) return `${size < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const parts = [
    ["d", 86400],
    ["h", 3600],
    ["m", 60],
    ["s", 1],
  ];
  let rest = Math.round(size);
  const words = [];
  for (const [unit, length] of parts) {
    const many = Math.floor(rest / length);
    rest -= many * length;
    if (many) words.push(`${many} ${unit}`);
  }
  return (seconds < 0 ? "-" : "") + words.slice(0, 2).join(" ");
}

/** A setting in milliseconds or bytes beside its raw number: 604800000 → "7 d". */
export function settingInWords(name, value) {
  if (!/^-?\d+$/.test(value ?? "")) return "";
  const number = Number(value);
  if (number < 0 || number > 9e15) return "";
  if (/(^|\.)ms$/.test(name)) return duration(number / 1000);
  if (/bytes/.test(name)) return number >= 1000 ? bytes(number) : "";
  return "";
}

const two = (value) => String(value).padStart(2, "0");

/** Milliseconds since 1970 → "2026-11-19 04:05:06.789", local. */
export function time(ms, { millis = true } = {}) {
  if (missing(ms) || ms < 0) return DASH;
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return `${day} ${clock}${millis ? "." + String(at.getMilliseconds()).padStart(3, "0") : ""}`;
}

export const clock = (ms) => time(ms).slice(11);

/** Milliseconds since 1970 → "4 s ago" */
export function ago(ms, now = Date.now()) {
  if (missing(ms) || ms < 0) return DASH;
  const seconds = (now - ms) / 1000;
  if (seconds < -1) return `in ${duration(-seconds)}`;
  return seconds < 1 ? "now" : `${duration(seconds)} ago`;
}

/** Milliseconds → the value of <input type="datetime-local">, and back. */
export const localInput = (ms) => time(ms).replace(" ", "T").slice(0, 23);
export const fromLocalInput = (text) => (text ? new Date(text).getTime() : null);

export const plural = (many, one, more = one + "s") => `${count(many)} ${many === 1 ? one : more}`;

/** A word for the shell, quoted if it must be. */
export function shell(word) {
  const text = String(word);
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
