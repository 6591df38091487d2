// A search over records as a stream: begin, records, progress, end. Cancelled when its page goes or hides.
import { useEffect, useRef, useState } from "../html.js";
import { AWAY, lost, useStream } from "../api.js";

const LIVE_MAX = 2000; // of a live view the newest are kept
const OVERLAP_MS = 2000; // clocks differ, and records arrive late

/**
 * `path` is the stream's address, null for none. While `live`, new records come first and old ones go. `paused` keeps the list still.
 * Returns what is known: `{records, begin, progress, end, error, skipped, state}` and `more(token)`, which goes on where it stopped.
 */
export function useSearch(path, { live = false, paused = false } = {}) {
  const kept = useRef(fresh());
  const [, draw] = useState(0);
  const frame = useRef(0);
  const [over, setOver] = useState(null); // the path whose search has ended
  const [token, setToken] = useState(null);
  const full = path && token?.of === path ? `${path}&continue=${encodeURIComponent(token.value)}` : path;
  const changed = () => {
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      draw((n) => n + 1);
    });
  };
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  useEffect(() => {
    kept.current = fresh();
    setOver(null);
    setToken(null);
  }, [path]);
  // A live view that was cut off goes on at the offsets where it was: what it has is not shown twice. One that was cut off before
  // it heard where it began goes on from the time at which it was opened.
  const place = useRef(null);
  const opened = useRef(null);
  const known = useRef(new Set());
  useEffect(() => {
    place.current = opened.current = null;
  }, [path]);
  const resume = (address) => {
    if (!live) return address;
    if (place.current) return withWord(address, "continue", place.current);
    const first = opened.current === null;
    opened.current ??= Date.now();
    return first || /[?&]from=/.test(address) ? address : withWord(address, "from", `@${opened.current - OVERLAP_MS}`);
  };
  const finish = (change) => {
    Object.assign(kept.current, change);
    setOver(full);
    changed();
    return "end";
  };
  const handlers = {
    open() {
      // A search that is opened again begins again; one that goes on keeps what it has.
      const { records, pending } = kept.current;
      known.current = new Set(live ? [...pending, ...records].map(placeOf) : []);
      kept.current = { ...fresh(), records: token?.of === path ? records.slice(0, token.kept) : live ? records : [], pending: live ? pending : [] };
    },
    begin: (data) => ((place.current = data.continue), Object.assign(kept.current, { begin: data }), changed()),
    records(data) {
      const now = kept.current;
      if (live) {
        const news = known.current.size ? data.records.filter((record) => !known.current.has(placeOf(record))) : data.records;
        now.pending = [...news].reverse().concat(now.pending).slice(0, LIVE_MAX);
      }
      else now.records = now.records.concat(data.records);
      changed();
    },
    hop: (data) => ((kept.current.hops = [...kept.current.hops, data]), changed()),
    progress: (data) => ((place.current = data.continue), Object.assign(kept.current, { progress: data }), changed()),
    skipped: (data) => (Object.assign(kept.current, { skipped: data.total }), changed()),
    trouble: (data) => lost("broker", data.message),
    end(data) {
      if (live && data.error?.code === AWAY) {
        lost("broker", data.error.message);
        return "again";
      }
      return finish({ end: data, progress: data, error: data.error ?? null });
    },
    failed: (data) => finish({ end: { reason: "error" }, error: data.error ?? data }),
  };
  const state = useStream(full === over ? null : full, handlers, resume);
  const now = kept.current;
  if (live && !paused && now.pending.length) {
    now.records = now.pending.concat(now.records).slice(0, LIVE_MAX);
    now.pending = [];
  }
  return {
    ...now,
    state,
    running: full !== null && full !== over,
    waiting: now.pending.length,
    more: (value) => setToken({ of: path, value, kept: now.records.length }),
    stop: () => finish({ end: { ...now.progress, reason: "cancelled", complete: false } }),
  };
}

const placeOf = ({ topic, partition, offset }) => `${topic}/${partition}:${offset}`;

function withWord(address, name, value) {
  const [path, query] = address.split("?");
  const words = new URLSearchParams(query);
  words.set(name, value);
  return `${path}?${words}`;
}

const fresh = () => ({ records: [], hops: [], pending: [], begin: null, progress: null, end: null, error: null, skipped: 0 });
