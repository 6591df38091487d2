// Calls to the console's server and streams from it. Nothing else in the frontend talks to the network.
import { signal, useCallback, useEffect, useRef, useState } from "./html.js";

/** What is wrong with the connection, for the banner: null, or {kind: "console" | "broker", message}. */
export const outage = signal(null);
export const AWAY = "BROKER_AWAY";
/** Counts up when an outage ends: pages read again. */
export const recovered = signal(0);
export const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (visible.value = !document.hidden));

/** An error in the server's words: what happened, and a hint what to do. */
export class ApiError extends Error {
  constructor(status, { message, hint = "", code = "" }) {
    super(message);
    this.name = "ApiError";
    Object.assign(this, { status, hint, code });
  }
}

/** The document of /api/session: who we are and what we may do. */
export const session = signal(null);

export async function call(method, path, { body, signal: cancelled } = {}) {
  const headers = method === "GET" ? {} : { "Content-Type": "application/json", "X-CSRF-Token": session.value?.csrf ?? "" };
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { Accept: "application/json", ...headers },
      body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
      signal: cancelled,
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost("console", "The console's server does not answer.");
    throw new ApiError(0, { message: "The console's server does not answer.", hint: "Is `ottla console` still running?" });
  }
  const text = await response.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = { message: text.slice(0, 300) };
  }
  if (response.ok) {
    if (outage.value?.kind === "console") watch();
    return value;
  }
  const error = problem(response.status, value);
  if (error.code === AWAY) lost("broker", error.message);
  // The login ended: the page asks for it again, at the same address.
  if (response.status === 401 && session.value?.role) session.value = { ...session.value, role: null };
  throw error;
}

function problem(status, value) {
  const said = value?.error && typeof value.error === "object" ? value.error : value;
  return new ApiError(status, { message: said?.message ?? `The server answered ${status}.`, hint: said?.hint, code: said?.code });
}

export const get = (path, options) => call("GET", path, options);
export const post = (path, body = {}, options) => call("POST", path, { body, ...options });
export const put = (path, body = {}, options) => call("PUT", path, { body, ...options });
export const patch = (path, body = {}, options) => call("PATCH", path, { body, ...options });
export const del = (path, body, options) => call("DELETE", path, { body, ...options });

// --- outages: ask until the cluster answers again ---------------------------------------------------------------------------

let asking = null;

/** The banner shows, and the cluster is asked until it answers. */
export function lost(kind, message) {
  if (outage.value?.kind !== kind) outage.value = { kind, message };
  watch();
}

function watch() {
  if (asking) return;
  asking = setTimeout(async () => {
    asking = null;
    try {
      const response = await fetch("/healthz", { headers: { Accept: "application/json" } });
      const health = await response.json().catch(() => ({}));
      if (health.broker === "away" || response.status === 503) {
        outage.value = { kind: "broker", message: health.message ?? health.error?.message ?? "No broker answers." };
        watch();
        return;
      }
    } catch {
      outage.value = { kind: "console", message: "The console's server does not answer." };
      watch();
      return;
    }
    if (outage.value) {
      outage.value = null;
      recovered.value += 1;
    }
  }, 1000);
}

// --- data of a page -----------------------------------------------------------------------------------------------------------

/**
 * What `path` answers, read again every `every` seconds while the tab is visible, and when an outage ends.
 * The old answer stays until the new one is there. `path` null reads nothing.
 */
export function useData(path, { every = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, of: null });
  const [round, setRound] = useState(0);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  const again = recovered.value;
  const shown = visible.value;
  useEffect(() => {
    if (!path || !shown) return undefined;
    const cancel = new AbortController();
    let timer = null;
    const read = async () => {
      try {
        const data = await get(path, { signal: cancel.signal });
        setState({ data, error: null, of: path });
      } catch (error) {
        if (error.name === "AbortError") return;
        setState((old) => ({ data: old.of === path ? old.data : null, error, of: path }));
      }
      if (every && !cancel.signal.aborted) timer = setTimeout(read, every * 1000);
    };
    read();
    return () => {
      cancel.abort();
      clearTimeout(timer);
    };
  }, [path, every, round, again, shown]);
  const stale = state.of !== path;
  return { data: stale ? null : state.data, error: stale ? null : state.error, loading: stale || (!state.data && !state.error), reload };
}

/**
 * Server-sent events of `path`: `handlers[event name](data)`; one that returns "end" closes the stream for good, "again" opens it anew.
 * Closed while the tab is hidden; a stream that breaks is opened again after a second, at last every eight. `resume(path)` is the
 * address for that moment. Returns "off", "open", "waiting".
 */
export function useStream(path, handlers, resume = (address) => address) {
  const [state, setState] = useState("off");
  const latest = useRef(null);
  latest.current = { handlers, resume };
  const shown = visible.value;
  const again = recovered.value;
  useEffect(() => {
    if (!path || !shown) {
      setState("off");
      return undefined;
    }
    let source = null;
    let timer = null;
    let pause = 1000;
    let over = false;
    const reopen = () => {
      source.close();
      setState("waiting");
      watch();
      timer = setTimeout(open, pause);
      pause = Math.min(pause * 2, 8000);
    };
    const open = () => {
      source = new EventSource(latest.current.resume(path));
      source.onopen = () => {
        pause = 1000;
        setState("open");
        latest.current.handlers.open?.();
      };
      for (const name of Object.keys(latest.current.handlers)) {
        if (name === "open") continue;
        source.addEventListener(name, (event) => {
          const then = latest.current.handlers[name]?.(JSON.parse(event.data));
          if (then === "again") reopen();
          if (then !== "end") return;
          over = true;
          source.close();
          setState("off");
        });
      }
      source.onerror = () => over || reopen();
    };
    open();
    return () => {
      over = true;
      source?.close();
      clearTimeout(timer);
    };
  }, [path, shown, again]);
  return state;
}

/**
 * A live document: `{head, rows: Map, order}`, first whole, then only what changed. Draws at most once a frame.
 * The old document stays on the page while the stream is opened again.
 */
export function useLive(path) {
  const kept = useRef({ of: null, head: {}, rows: new Map(), order: [] });
  const [, draw] = useState(0);
  const frame = useRef(0);
  const changed = () => {
    if (!frame.current) frame.current = requestAnimationFrame(() => ((frame.current = 0), draw((n) => n + 1)));
  };
  const [error, setError] = useState(null);
  const state = useStream(path, {
    snapshot(data) {
      kept.current = { of: path, head: data.head ?? {}, rows: new Map(Object.entries(data.rows ?? {})), order: data.order ?? Object.keys(data.rows ?? {}) };
      setError(null);
      changed();
    },
    delta(data) {
      const { head, rows, order } = kept.current;
      for (const [key, row] of Object.entries(data.rows ?? {})) rows.set(key, { ...rows.get(key), ...row });
      for (const key of data.gone ?? []) rows.delete(key);
      kept.current = { of: path, head: { ...head, ...data.head }, rows, order: data.order ?? (data.gone ? order.filter((key) => rows.has(key)) : order) };
      changed();
    },
    trouble(data) {
      lost("broker", data.message);
    },
    well() {
      outage.value = null;
    },
    failed(data) {
      const problem = data.error ?? data;
      if (problem.code === AWAY) {
        lost("broker", problem.message);
        return "again";
      }
      setError(problem);
      return "end";
    },
    end: () => "end",
  });
  const { of, head, rows, order } = kept.current;
  const list = order.map((key) => rows.get(key)).filter(Boolean);
  return { head, rows, list, order, state, error, loading: of === null && !error, stale: of !== path };
}
