// The address bar is the state of the page: path, filters, sort, selected record. Every link reproduces what it was copied from.
import { signal } from "./html.js";

/** Where we are. Read `place.value` in a component to draw again when it changes. */
export const place = signal(read());

function read() {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

/** `path`/group id` → "/groups/a%2Fb": each inserted value is one segment. */
export function path(strings, ...values) {
  return strings.reduce((text, part, i) => text + encodeURIComponent(values[i - 1]) + part);
}

export function go(href, { replace = false } = {}) {
  const from = location.pathname;
  history[replace ? "replaceState" : "pushState"]({}, "", href);
  place.value = read();
  if (location.pathname !== from) scrollTo(0, 0);
}

function changed(query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "" && one !== false) next.append(name, one === true ? "1" : String(one));
    }
  }
  const text = next.toString();
  return text ? `?${text}` : "";
}

/** An address: a path, and the query's entries that are neither null nor empty. */
export const address = (base, query = {}) => base + changed("", query);

/** The address of this page with other entries in its query; null removes one. */
export const withQuery = (changes) => place.value.path + changed(place.value.query, changes);

/** Go there. Typing replaces the entry of the history, a click adds one. */
export const setQuery = (changes, { replace = true } = {}) => go(location.pathname + changed(location.search, changes), { replace });

/** The first route that matches, with its parameters: `["/topics/:topic", load]`. */
export function match(routes, where) {
  const have = where.split("/").filter(Boolean);
  for (const [pattern, target] of routes) {
    const want = pattern.split("/").filter(Boolean);
    if (want.length !== have.length) continue;
    const found = {};
    if (want.every((word, i) => (word[0] === ":" ? ((found[word.slice(1)] = decode(have[i])), true) : word === have[i]))) {
      return { target, parameters: found };
    }
  }
  return null;
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

addEventListener("popstate", () => (place.value = read()));

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.origin !== location.origin || link.target || link.hasAttribute("download") || link.pathname.startsWith("/api/")) return;
  if (link.hash && link.pathname === location.pathname && link.search === location.search) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
