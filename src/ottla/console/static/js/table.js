// The one table: a window of some sixty rows over any number of them, sorted and filtered by the server.
import { html, signal, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import { get, useLive } from "./api.js";
import { address, go, place, setQuery } from "./router.js";
import { count } from "./format.js";
import { Empty, Problem } from "./parts.js";

const ROW_PX = 32;
const WHOLE_MAX = 60; // so many rows are drawn at once, without a window
const AROUND = 16; // rows drawn above and below those in sight

const small = matchMedia("(max-width: 640px)");
export const narrow = signal(small.matches);
small.addEventListener("change", () => (narrow.value = small.matches));

/**
 * `columns`: `{key, title, width?, min?, number?, sort?, cell(row, index)?, wideOnly?, tall?}`; a column without `width` takes the rest.
 * `rows`: an array, or `{total, at(index), view?(first, end)}` whose `at` is undefined for a row that is not here yet.
 * `open(row)` is an address or an action; the row is then chosen by mouse or keyboard.
 */
export function Table({ columns, rows, label, rowKey, open, selected, sort, onSort, height, empty, loading, error, foot, inMemory }) {
  const id = useId();
  const box = useRef(null);
  const [scroll, setScroll] = useState({ top: 0, height: 700 });
  const [active, setActive] = useState(-1);
  const sorted = inMemory && Array.isArray(rows) ? sortRows(rows, columns, sort) : rows;
  const total = Array.isArray(sorted) ? sorted.length : sorted.total;
  const at = (index) => (Array.isArray(sorted) ? sorted[index] : sorted.at(index));
  const shown = columns.filter((column) => column && !(column.wideOnly && narrow.value));
  const windowed = total > WHOLE_MAX;
  const first = windowed ? Math.max(0, Math.floor(scroll.top / ROW_PX) - AROUND) : 0;
  const end = windowed ? Math.min(total, Math.ceil((scroll.top + scroll.height) / ROW_PX) + AROUND) : total;

  useLayoutEffect(() => {
    if (!windowed) return undefined;
    const element = box.current;
    let frame = 0;
    const measure = () => {
      frame = 0;
      setScroll((old) => {
        const next = { top: Math.floor(element.scrollTop / (ROW_PX * 4)) * ROW_PX * 4, height: element.clientHeight + ROW_PX * 4 };
        return next.top === old.top && next.height === old.height ? old : next;
      });
    };
    const later = () => (frame ||= requestAnimationFrame(measure));
    measure();
    element.addEventListener("scroll", later, { passive: true });
    const sizes = new ResizeObserver(later);
    sizes.observe(element);
    return () => {
      element.removeEventListener("scroll", later);
      sizes.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [windowed]);

  useEffect(() => {
    if (!Array.isArray(rows)) rows.view?.(first, end);
  }, [rows.view, first, end]);

  const choose = (row, event) => {
    if (!open || row === undefined) return;
    if (event?.target.closest("a, button, input, label, summary")) return;
    if (String(getSelection() ?? "")) return;
    const to = open(row);
    if (typeof to === "string") go(to);
  };
  const move = (to) => {
    const index = Math.max(0, Math.min(total - 1, to));
    setActive(index);
    const element = box.current;
    const top = index * ROW_PX;
    if (windowed) {
      if (top < element.scrollTop) element.scrollTop = top;
      else if (top + ROW_PX * 2 > element.scrollTop + element.clientHeight) element.scrollTop = top + ROW_PX * 2 - element.clientHeight;
    } else {
      element.querySelectorAll("tbody tr.row-line")[index]?.scrollIntoView({ block: "nearest" });
    }
  };
  const onKeyDown = (event) => {
    if (!open || event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor((box.current.clientHeight / ROW_PX) * 0.9));
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -total, End: total };
    if (event.key in steps) move(active + steps[event.key]);
    else if (event.key === "Enter" && active >= 0) choose(at(active));
    else return;
    event.preventDefault();
  };

  const minWidth = shown.reduce((sum, column) => sum + (column.width ?? column.min ?? 140), 0);
  const lines = [];
  for (let index = first; index < end; index++) {
    const row = at(index);
    const key = row === undefined ? `#${index}` : rowKey(row);
    const chosen = selected !== undefined && row !== undefined && rowKey(row) === selected;
    lines.push(html`<tr
      key=${key}
      id="${id}-${index}"
      class="row-line ${open ? "can-open" : ""} ${index === active ? "active" : ""}"
      aria-rowindex=${index + 2}
      aria-selected=${open ? String(chosen) : undefined}
      onClick=${open ? (event) => (setActive(index), choose(row, event)) : undefined}
    >
      ${shown.map((column) => html`<td key=${column.key} class=${cellClass(column)}>${cell(column, row, index)}</td>`)}
    </tr>`);
  }
  const style = height && windowed ? { "--table-height": height } : undefined;
  return html`<div>
    <div ref=${box} class="table-box ${windowed ? "" : "whole"}" style=${style} tabindex=${open || total === 0 ? undefined : 0} role="region" aria-label=${open ? undefined : label}>
      <table
        class="table"
        style=${{ minWidth: `${minWidth}px` }}
        role=${open ? "grid" : undefined}
        aria-label=${label}
        aria-rowcount=${total + 1}
        aria-colcount=${shown.length}
        tabindex=${open ? 0 : undefined}
        aria-activedescendant=${open && active >= first && active < end ? `${id}-${active}` : undefined}
        onKeyDown=${onKeyDown}
        onFocus=${(event) => open && event.target === event.currentTarget && active < 0 && total && setActive(first)}
      >
        <colgroup>
          ${shown.map((column) => html`<col key=${column.key} style=${column.width ? { width: `${column.width}px` } : undefined} />`)}
        </colgroup>
        <thead>
          <tr aria-rowindex="1">
            ${shown.map((column) => html`<${Heading} key=${column.key} column=${column} sort=${sort} onSort=${onSort} />`)}
          </tr>
        </thead>
        <tbody>
          ${first > 0 && html`<tr key="above" class="spacer" aria-hidden="true"><td colspan=${shown.length} style=${{ height: `${first * ROW_PX}px` }}></td></tr>`}
          ${lines}
          ${end < total && html`<tr key="below" class="spacer" aria-hidden="true"><td colspan=${shown.length} style=${{ height: `${(total - end) * ROW_PX}px` }}></td></tr>`}
        </tbody>
      </table>
    </div>
    ${error && html`<${Problem} error=${error} />`}
    ${total === 0 && !error && (loading ? html`<div class="loading" role="status"><span class="spinner"></span>Reading…</div>` : (empty ?? html`<${Empty} title="Nothing here" />`))}
    ${foot && html`<div class="table-foot">${foot}</div>`}
  </div>`;
}

const cellClass = (column) => `${column.number ? "number" : ""} ${column.tall ? "tall" : ""} ${column.mono ? "mono" : ""}`;

function cell(column, row, index) {
  if (row === undefined) return html`<span class="pending"></span>`;
  return column.cell ? column.cell(row, index) : (row[column.key] ?? "–");
}

function Heading({ column, sort, onSort }) {
  const key = column.sort === true ? column.key : column.sort;
  if (!key || !onSort) return html`<th scope="col" class=${column.number ? "number" : ""}>${column.title}</th>`;
  const down = sort === `-${key}`;
  const up = sort === key;
  // Figures begin with the largest, names with the first.
  const next = down ? key : up ? `-${key}` : column.number ? `-${key}` : key;
  return html`<th scope="col" class=${column.number ? "number" : ""} aria-sort=${up ? "ascending" : down ? "descending" : undefined}>
    <button type="button" onClick=${() => onSort(next)}>${column.title}${up ? " ↑" : down ? " ↓" : ""}</button>
  </th>`;
}

function sortRows(rows, columns, sort) {
  if (!sort) return rows;
  const key = sort.replace(/^-/, "");
  const column = columns.find((one) => one && (one.sort === key || (one.sort === true && one.key === key)));
  if (!column) return rows;
  const value = column.value ?? ((row) => row[column.key]);
  const turn = sort[0] === "-" ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))) * turn;
  });
}

/** The sort of a table, kept in the query of the address. */
export function useSort(fallback, name = "sort") {
  const sort = place.value.query.get(name) ?? fallback;
  return [sort, (next) => setQuery({ [name]: next === fallback ? null : next }, { replace: false })];
}

const PAGE = 100;
const LIVE = 50; // the live window is aligned to this

/**
 * The rows of a list that the server sorts and filters: pages are read as they come into sight, and what is in sight stays live.
 * `list` is the path of the call ("/api/topics"), `live` that of its stream.
 */
export function useServerRows(list, live, query, rowKey) {
  const asked = address("", query);
  const kept = useRef(null);
  if (kept.current?.asked !== asked) {
    const old = kept.current;
    kept.current = { asked, keys: [], rows: new Map(), pages: new Map(), head: old?.head ?? null, cancel: new AbortController(), old };
    old?.cancel.abort();
  }
  const [, draw] = useState(0);
  const [error, setError] = useState(null);
  const [window_, setWindow] = useState(null);
  const timer = useRef(0);

  const merge = (mine, offset, rows) => {
    rows.forEach((row, i) => {
      const key = rowKey(row);
      mine.keys[offset + i] = key;
      mine.rows.set(key, { ...mine.rows.get(key), ...row });
    });
  };
  const read = async (page) => {
    const mine = kept.current;
    if (mine.pages.has(page)) return;
    mine.pages.set(page, true);
    try {
      const found = await get(address(list, { ...query, offset: page * PAGE, limit: PAGE }), { signal: mine.cancel.signal });
      if (kept.current !== mine) return;
      mine.head = found;
      mine.old = null;
      merge(mine, page * PAGE, found.rows);
      setError(null);
      draw((n) => n + 1);
    } catch (problem) {
      mine.pages.delete(page);
      if (problem.name !== "AbortError" && kept.current === mine) setError(problem);
    }
  };
  const view = useMemo(
    () => (first, end) => {
      for (let page = Math.floor(first / PAGE); page * PAGE < Math.max(end, 1); page++) read(page);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => {
        const offset = Math.floor(first / LIVE) * LIVE;
        const limit = Math.max(LIVE, Math.ceil((end - offset) / LIVE) * LIVE);
        setWindow((old) => (old?.offset === offset && old.limit === limit ? old : { offset, limit }));
      }, 300);
    },
    [asked],
  );
  useEffect(() => () => (kept.current.cancel.abort(), clearTimeout(timer.current)), []);

  const stream = useLive(window_ && address(live, { ...query, ...window_ }));
  const mine = kept.current;
  if (window_ && !stream.loading && !stream.stale) {
    merge(mine, window_.offset, stream.list);
    if (stream.head.matched !== undefined) mine.head = { ...mine.head, ...stream.head };
  }
  const matched = mine.head?.matched ?? 0;
  const source = mine.old?.keys.length ? mine.old : mine; // the old list stays until the new one is there
  return {
    total: source === mine ? matched : Math.min(source.keys.length, source.head?.matched ?? 0),
    at: (index) => source.rows.get(source.keys[index]),
    view,
    head: mine.head,
    loading: !mine.head,
    error,
  };
}

/** "Showing 40 of 2,000", and whether details are still being read. */
export function listFoot(head, noun) {
  if (!head) return null;
  const { matched, total, complete } = head;
  return html`<span>${matched === total ? `${count(total)} ${noun}` : `${count(matched)} of ${count(total)} ${noun}`}</span>
    ${complete === false && html`<span class="row"><span class="spinner"></span>Reading details…</span>`}`;
}
