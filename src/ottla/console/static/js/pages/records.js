// Records of a topic: where to read, what to look for, what was found, and one record beside the list.
import { html, useEffect, useMemo, useState } from "../html.js";
import { post, session, useData } from "../api.js";
import { Chart } from "../chart.js";
import { bytes, clock, compact, count, duration, fromLocalInput, localInput, plural, rate, time } from "../format.js";
import { Action, Badge, Check, Command, Dialog, Empty, Field, Loaded, Page, Panel, Problem, Progress, Segmented, Select } from "../parts.js";
import { field, line, shown, steps } from "../record/datum.js";
import { ProduceDialog } from "../record/dialogs.js";
import { KeyHistory } from "../record/history.js";
import { useSearch } from "../record/search.js";
import { RecordAt, RecordViewer, SNIPPETS } from "../record/viewer.js";
import { address, path, place, setQuery } from "../router.js";
import { Table, narrow } from "../table.js";

const SELECTION = ["from", "until", "partitions", "order", "limit", "search", "regex", "ignore_case", "where", "key", "key_base64", "all_partitions", "key_format", "value_format", "isolation", "budget_bytes"];
const FORMATS = ["auto", "text", "json", "hex", "base64", "msgpack", "avro", "protobuf", "json_schema"];
const LIMITS = ["50", "100", "500", "1000", "10000"];

export default function Records({ topic }) {
  const { query } = place.value;
  const given = Object.fromEntries(SELECTION.map((name) => [name, query.get(name)]));
  const live = query.get("live") === "1";
  const history = query.get("view") === "history" && (given.key ?? given.key_base64) !== null;
  const [paused, setPaused] = useState(false);
  const [dialog, setDialog] = useState(null);
  const selection = { ...given, live: live ? "1" : null };
  const base = path`/api/topics/${topic}`;
  const found = useSearch(address(`${base}/records`, { order: "newest", limit: 100, ...drop(selection) }), { live, paused });
  const columns = query.getAll("column");
  const [chosen, choose] = useChosen(found.records);
  const addColumn = (spelled) => !columns.includes(spelled) && setQuery({ column: [...columns, spelled] });
  const addFilter = (expression) => setQuery({ where: given.where ? `(${given.where}) and ${expression}` : expression }, { replace: false });
  const exportAt = (format) => address(`${base}/export`, { format, ...drop({ ...given, limit: query.get("limit") }) });
  return html`<${Page} title=${topic}
    badge=${live && html`<${Badge} kind=${paused ? "" : "good"}>${paused ? "paused" : "live"}<//>`}
    actions=${html`<${Action} kind="main-action" onClick=${() => setDialog("produce")}>Produce…<//>
      ${session.value.export !== false && !live && html`<details class="menu"><summary class="button">Export</summary><div class="menu-list">
        ${[["jsonl", "JSON lines"], ["csv", "CSV"], ["parquet", "Parquet"]].map(([format, name]) => html`<a key=${format} href=${exportAt(format)} download>${name}</a>`)}
        <p class="muted small">Everything that matches, not only what is shown.</p></div></details>`}
      <button class="button" onClick=${() => setDialog("copy")}>Copy as…</button>
      <a class="button" href=${path`/topics/${topic}`}>About the topic</a>`}>
    <${Form} topic=${topic} given=${given} live=${live} />
    ${!live && html`<${TimeSlider} topic=${topic} given=${given} />`}
    <${Told} found=${found} live=${live} paused=${paused} setPaused=${setPaused} />
    ${found.error && html`<${Problem} error=${found.error} />`}
    ${history
      ? html`<${KeyHistory} records=${found.records} />`
      : html`<div class=${chosen ? "with-viewer" : ""}>
          <${Panel} flush label="Records">
            <${List} found=${found} columns=${columns} topic=${topic} chosen=${chosen} choose=${choose} live=${live} />
          <//>
          ${chosen && html`<${Chosen} key=${chosen.name} chosen=${chosen} topic=${topic} onClose=${() => choose(null)} onColumn=${addColumn} onFilter=${addFilter} />`}
        </div>`}
    ${dialog === "produce" && html`<${ProduceDialog} topic=${topic} onClose=${() => setDialog(null)} />`}
    ${dialog === "copy" && html`<${CopyQuery} topic=${topic} selection=${drop(selection)} onClose=${() => setDialog(null)} />`}
  <//>`;
}

const drop = (entries) => Object.fromEntries(Object.entries(entries).filter(([, value]) => value !== null && value !== ""));

/** The record that the address names, `record=partition:offset`, whether it is in the list or not. */
function useChosen(records) {
  const name = place.value.query.get("record");
  const [partition, offset] = (name ?? "").split(":").map(Number);
  const valid = name && Number.isInteger(partition) && Number.isInteger(offset);
  const inList = valid ? records.find((record) => record.partition === partition && record.offset === offset) : null;
  const choose = (record) => setQuery({ record: record && `${record.partition}:${record.offset}` }, { replace: Boolean(name) });
  return [valid ? { name, partition, offset, record: inList } : null, choose];
}

function Chosen({ chosen, topic, ...rest }) {
  // The list may move on while the record is looked at: what was first found stays.
  const [record] = useState(chosen.record);
  if (record) return html`<${RecordViewer} record=${record} ...${rest} />`;
  return html`<${RecordAt} topic=${topic} partition=${chosen.partition} offset=${chosen.offset} ...${rest} />`;
}

// --- where to read ------------------------------------------------------------------------------------------------------------

const WHERE = [["newest", "Newest"], ["oldest", "Oldest"], ["live", "Live"], ["offset", "From an offset"], ["time", "From a time"], ["ago", "Since"], ["group", "A group's position"]];

function seekOf({ from, order }, live) {
  if (live) return "live";
  if (!from) return order === "oldest" ? "oldest" : "newest";
  if (from.startsWith("group:")) return "group";
  if (/^-?\d+$/.test(from)) return "offset";
  if (/^[@\d]*$/.test(from) || /^\d{4}-/.test(from)) return "time";
  return "ago";
}

function Form({ topic, given, live }) {
  const [draft, setDraft] = useState(given);
  const same = JSON.stringify(given);
  useEffect(() => setDraft(given), [same]);
  const [seek, setSeek] = useState(seekOf(given, live));
  useEffect(() => setSeek(seekOf(given, live)), [given.from, given.order, live]);
  const [problem, setProblem] = useState(null);
  const [more, setMore] = useState(Boolean(given.key !== null || given.key_base64 !== null || given.key_format || given.value_format || given.isolation || given.until || given.budget_bytes));
  const change = (changes) => setDraft((old) => ({ ...old, ...changes }));
  const submit = async (event, changes = {}) => {
    event?.preventDefault();
    const wanted = { ...draft, ...changes };
    if (wanted.where) {
      const checked = await post("/api/filters/check", { where: wanted.where }).catch(() => ({ ok: true }));
      if (!checked.ok) return setProblem(checked);
    }
    setProblem(null);
    setQuery({ ...wanted, record: null, live: seek === "live" && !("live" in changes) ? "1" : changes.live }, { replace: false });
    return undefined;
  };
  const seekTo = (to) => {
    setSeek(to);
    if (to === "newest") submit(null, { from: null, order: null, live: null });
    if (to === "oldest") submit(null, { from: null, order: "oldest", live: null });
    if (to === "live") submit(null, { from: null, until: null, order: null, live: "1" });
    if (to === "offset") change({ from: "0", order: "oldest" });
    if (to === "time") change({ from: `@${Date.now() - 3600000}`, order: "oldest" });
    if (to === "ago") change({ from: "10m", order: "oldest" });
    if (to === "group") change({ from: "group:", order: "oldest" });
  };
  const text = (name, label, extra = {}) => html`<input aria-label=${label} placeholder=${label} spellcheck=${false} autocomplete="off" value=${draft[name] ?? ""} onInput=${(event) => change({ [name]: event.currentTarget.value || null })} ...${extra} />`;
  const flag = (name, label) => html`<${Check} label=${label} checked=${draft[name] === "1"} onChange=${(on) => submit(null, { [name]: on ? "1" : null })} />`;
  return html`<form class="panel search-form" onSubmit=${submit} novalidate role="search">
    <div class="body stack tight">
      <div class="toolbar">
        <${Select} label="Where to read" value=${seek} options=${WHERE} onChange=${seekTo} />
        ${seek === "offset" && text("from", "Offset; -100 is the last hundred", { class: "short-field" })}
        ${seek === "ago" && text("from", "10m, 2h, 1d", { class: "short-field" })}
        ${seek === "time" && html`<input type="datetime-local" step="0.001" aria-label="Time" value=${localInput(draft.from?.startsWith("@") ? Number(draft.from.slice(1)) : Date.parse(draft.from ?? ""))} onChange=${(event) => change({ from: `@${fromLocalInput(event.currentTarget.value) ?? 0}` })} />`}
        ${seek === "group" && html`<${GroupField} topic=${topic} value=${draft.from?.slice(6) ?? ""} onInput=${(group) => change({ from: `group:${group}` })} />`}
        ${text("search", "Text in key, value or headers", { class: "grow", type: "search" })}
        ${text("where", 'Filter, as value.amount > 100', { class: `grow mono ${problem ? "wrong" : ""}`, "aria-invalid": problem ? "true" : undefined })}
        <button class="button main-action">Search</button>
        <button type="button" class="button quiet" aria-expanded=${String(more)} onClick=${() => setMore(!more)}>${more ? "Fewer options" : "More options"}</button>
      </div>
      ${problem && html`<div class="error-box" role="alert">${problem.message}${problem.excerpt && html`<pre>${problem.excerpt}</pre>`}${problem.hint && html`<div class="hint small">${problem.hint}</div>`}</div>`}
      ${more && html`<div class="toolbar">
        ${text("key", "Exact key")}
        ${draft.key_base64 && text("key_base64", "Exact key, in base64")}
        ${text("partitions", "Partitions, as 0,2", { class: "short-field" })}
        ${text("until", "Until: offset, 10m, a time", { class: "short-field" })}
        <${Select} label="Order" value=${draft.order ?? "newest"} options=${[["newest", "Newest first"], ["oldest", "Oldest first"]]} onChange=${(order) => submit(null, { order })} />
        <${Select} label="How many" value=${draft.limit ?? "100"} options=${LIMITS.map((limit) => [limit, `${count(Number(limit))} records`])} onChange=${(limit) => submit(null, { limit })} />
        <${Select} label="Format of keys" value=${draft.key_format ?? "auto"} options=${FORMATS.map((name) => [name, `Key: ${name}`])} onChange=${(name) => submit(null, { key_format: name === "auto" ? null : name })} />
        <${Select} label="Format of values" value=${draft.value_format ?? "auto"} options=${FORMATS.map((name) => [name, `Value: ${name}`])} onChange=${(name) => submit(null, { value_format: name === "auto" ? null : name })} />
        <${Select} label="Isolation" value=${draft.isolation ?? "read_committed"} options=${["read_committed", "read_uncommitted"]} onChange=${(isolation) => submit(null, { isolation: isolation === "read_committed" ? null : isolation })} />
        ${flag("regex", "Regular expression")} ${flag("ignore_case", "Ignore case")} ${flag("all_partitions", "Key in all partitions")}
        ${(given.key ?? given.key_base64) !== null && html`<${Check} label="History of the key" checked=${place.value.query.get("view") === "history"} onChange=${(on) => setQuery({ view: on ? "history" : null, order: on ? "oldest" : given.order }, { replace: false })} />`}
        <${Columns} />
      </div>`}
    </div>
  </form>`;
}

function GroupField({ topic, value, onInput }) {
  const found = useData(path`/api/topics/${topic}/consumers`);
  return html`<input list="groups-of-topic" aria-label="Group" placeholder="Group" value=${value} autocomplete="off" onInput=${(event) => onInput(event.currentTarget.value)} />
    <datalist id="groups-of-topic">${found.data?.groups.map(({ group }) => html`<option key=${group} value=${group}></option>`)}</datalist>`;
}

function Columns() {
  const columns = place.value.query.getAll("column");
  const [text, setText] = useState("");
  const add = () => {
    if (steps(text) && !columns.includes(text.trim())) setQuery({ column: [...columns, text.trim()] });
    setText("");
  };
  return html`<input class="mono short-field" aria-label="Field to show as a column" placeholder="Column, as value.id" value=${text} spellcheck=${false}
      onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${(event) => event.key === "Enter" && (event.preventDefault(), add())} />
    ${columns.map((spelled) => html`<button key=${spelled} type="button" class="badge plain chip" aria-label=${`Remove the column ${spelled}`} onClick=${() => setQuery({ column: columns.filter((one) => one !== spelled) })}>${spelled} ×</button>`)}`;
}

// --- what was scanned ---------------------------------------------------------------------------------------------------------

const REASON = {
  done: () => ["good", "All of it was scanned."],
  limit: (many) => ["", `The first ${count(many)} are shown; there may be more.`],
  budget: () => ["warn", "Stopped at the limit of one search. There is more to scan."],
  cancelled: () => ["warn", "Cancelled: the rest was not scanned."],
  error: () => ["bad", "The search failed."],
};

function Told({ found, live, paused, setPaused }) {
  const { progress, end, begin, records, running } = found;
  const [kind, words] = end ? (REASON[end.reason] ?? (() => ["", ""]))(records.length) : ["", ""];
  return html`<div class="told" role="status" aria-live="off">
    ${running && !live && html`<span class="row"><span class="spinner"></span>Searching</span>`}
    ${live && html`<button class="button" onClick=${() => setPaused(!paused)}>${paused ? `Go on${found.waiting ? ` (${count(found.waiting)} new)` : ""}` : "Pause"}</button>`}
    <span class="strong">${plural(records.length, "record")}</span>
    ${progress && html`<span class="muted">scanned ${compact(progress.records)} records, ${bytes(progress.bytes)} in ${duration(progress.elapsed_s)}${progress.records_per_s > 0 && !live ? ` (${rate(progress.records_per_s)}, ${bytes(progress.bytes_per_s)}/s)` : ""}</span>`}
    ${running && progress?.at_ms && !live && html`<span class="muted">now at ${time(progress.at_ms, { millis: false })}</span>`}
    ${running && progress?.left_s > 0 && !live && html`<span class="muted">about ${duration(progress.left_s)} left</span>`}
    ${end && html`<span class=${kind}>${words}</span>`}
    ${found.skipped > 0 && html`<span class="warn">${count(found.skipped)} not shown: they came too fast</span>`}
    ${begin?.notes?.map((note) => html`<span key=${note} class="muted">${note}</span>`)}
    ${running && !live && html`<button class="button" onClick=${found.stop}>Cancel</button>`}
    ${end?.continue && html`<button class="button" onClick=${() => found.more(end.continue)}>${end.reason === "limit" ? "Show more" : "Go on"}</button>`}
    ${running && !live && progress?.offsets_all > 0 && html`<div class="told-bar"><${Progress} label="Scanned" done=${progress.offsets_done} all=${progress.offsets_all} /></div>`}
  </div>`;
}

/** Records per time, by index lookups alone; a stretch drawn with the mouse is where to read. */
function TimeSlider({ topic, given }) {
  const found = useData(address(path`/api/topics/${topic}/histogram`, { partitions: given.partitions, buckets: 60 }));
  const [shown_, setShown] = useState(localStorage.getItem("ottla.histogram") !== "0");
  const toggle = () => {
    localStorage.setItem("ottla.histogram", shown_ ? "0" : "1");
    setShown(!shown_);
  };
  const buckets = found.data?.buckets ?? [];
  const data = useMemo(() => ({ times: buckets.map(({ at_ms: at }) => at), records: buckets.map(({ records }) => records) }), [found.data]);
  const select = (from, until) => setQuery({ from: `@${Math.floor(from)}`, until: `@${Math.ceil(until)}`, order: "oldest", live: null, record: null }, { replace: false });
  const picked = given.from?.startsWith("@") && given.until?.startsWith("@");
  return html`<${Panel} label="Records over time" title="Over time" flush
    end=${html`${picked && html`<span class="small">${time(Number(given.from.slice(1)), { millis: false })} to ${time(Number(given.until.slice(1)), { millis: false })}</span><button class="button quiet" onClick=${() => setQuery({ from: null, until: null, order: null })}>Whole topic</button>`}
      <span class="muted small">drag over a stretch to read it</span><button class="button quiet" aria-expanded=${String(shown_)} onClick=${toggle}>${shown_ ? "Hide" : "Show"}</button>`}>
    ${shown_ && html`<${Loaded} of=${found}>${() => html`<${Chart} label="Records over time" height=${110} times=${data.times} series=${[{ label: "Records", values: data.records, bars: true, format: compact }]} onSelect=${select} empty="The topic has no records to draw." />
      <${SliderKeys} buckets=${buckets} width=${found.data.bucket_ms} select=${select} />`}<//>`}
  <//>`;
}

/** The same for the keyboard: two range inputs. */
function SliderKeys({ buckets, width, select }) {
  if (buckets.length < 2) return null;
  const start = buckets[0].at_ms;
  const end = buckets.at(-1).at_ms + width;
  const { query } = place.value;
  const at = (name, fallback) => (query.get(name)?.startsWith("@") ? Number(query.get(name).slice(1)) : fallback);
  const [from, until] = [at("from", start), at("until", end)];
  const range = (label, value, change) => html`<input type="range" class="slider" aria-label=${label} aria-valuetext=${time(value, { millis: false })} min=${start} max=${end} step=${Math.max(1, Math.floor(width))} value=${value} onChange=${(event) => change(Number(event.currentTarget.value))} />`;
  return html`<div class="sliders">
    ${range("Read from", from, (value) => select(value, Math.max(value + width, until)))}
    ${range("Read until", until, (value) => select(Math.min(from, value - width), value))}
  </div>`;
}

// --- what was found -----------------------------------------------------------------------------------------------------------

const NULL = html`<span class="tree-null">null</span>`;

function List({ found, columns, topic, chosen, choose, live }) {
  const small = narrow.value;
  const tight = live || Boolean(chosen) || small;
  const fields = useMemo(() => columns.map((spelled) => ({ spelled, steps: steps(spelled) })).filter((one) => one.steps), [columns.join("\n")]);
  const table = [
    { key: "partition", title: "P", number: true, width: 52, wideOnly: true },
    { key: "offset", title: "Offset", number: true, width: 96, wideOnly: true },
    { key: "timestamp", title: "Time", width: tight ? 122 : 204, cell: (record) => html`<span title=${time(record.timestamp)}>${tight ? clock(record.timestamp) : time(record.timestamp)}</span>` },
    { key: "key", title: "Key", width: small ? 84 : chosen ? 110 : 150, mono: true, cell: (record) => (record.key === null ? NULL : line(record.key, 120)) },
    ...fields.map(({ spelled, steps: path_ }) => ({ key: `field ${spelled}`, title: spelled, width: 150, mono: true, cell: (record) => shown(field(record, path_)) })),
    { key: "value", title: "Value", min: small ? 130 : 240, mono: true, cell: (record) => (record.value === null ? NULL : line(record.value)) },
    !chosen && { key: "headers", title: "Headers", width: 84, number: true, wideOnly: true, cell: (record) => record.headers?.length || "" },
    !chosen && { key: "size", title: "Size", width: 84, number: true, wideOnly: true, cell: (record) => bytes(record.size) },
  ];
  return html`<${Table} label=${`Records of ${topic}`} columns=${table} rows=${found.records} rowKey=${({ partition, offset }) => `${partition}:${offset}`} selected=${chosen?.name} height="calc(100vh - 210px)"
    open=${(record) => void choose(record)} loading=${found.running && !live}
    empty=${live ? html`<${Empty} title="Waiting for new records">Records appear here as they are written.<//>` : html`<${Empty} title="Nothing found">${found.end?.complete ? "Everything was scanned." : ""}<//>`} />`;
}

function CopyQuery({ topic, selection, onClose }) {
  const found = useData(address(path`/api/topics/${topic}/snippets`, selection));
  const [how, setHow] = useState("python");
  return html`<${Dialog} title="Read the same elsewhere" wide onClose=${onClose}>
    <${Segmented} label="Language" value=${how} options=${SNIPPETS.filter(([id]) => id !== "json")} onChange=${setHow} />
    <${Loaded} of=${found}>${(snippets) => html`<${Command} text=${snippets[how] ?? ""} label=${how} />`}<//>
  <//>`;
}
