// The one record viewer: tree, text, bytes, headers, why a format failed, copies for other tools, and what can be done with a record.
import { html, useEffect, useState } from "../html.js";
import { useData } from "../api.js";
import { bytes, plural } from "../format.js";
import { Action, Badge, Command, Facts, Loaded, Problem, Segmented, Time, copy } from "../parts.js";
import { address, path } from "../router.js";
import { CopyDialog, ProduceDialog } from "./dialogs.js";
import { decodeBase64, line, pretty, structure } from "./datum.js";
import { Hex } from "./hex.js";
import { Tree } from "./tree.js";

export const linkTo = ({ topic, partition, offset }) => address(path`/topics/${topic}/records`, { record: `${partition}:${offset}` });

const apiPath = ({ topic, partition, offset }) => path`/api/topics/${topic}/records/${partition}/${offset}`;

const VIEWS = [["value", "Value"], ["key", "Key"], ["headers", "Headers"], ["details", "Details"], ["copy", "Copy as"]];

export function RecordViewer({ record: given, onClose, onColumn, onFilter, original }) {
  const [view, setView] = useState("value");
  const [dialog, setDialog] = useState(null);
  // A list holds long values cut off, and no bytes: the whole record is read when it is looked at.
  const whole = useData(address(apiPath(given), { raw: 1 }));
  const record = whole.data ?? given;
  const key = line(record.key, 200);
  // A key with a schema is looked for by its bytes; its text is not what was hashed.
  const exact = record.key?.schema ? record.key.base64 && { key_base64: record.key.base64 } : record.key && { key: record.key.text };
  const history = exact && address(path`/topics/${record.topic}/records`, { ...exact, order: "oldest", view: "history" });
  const trace = exact?.key && address("/trace", { ...exact, topics: record.topic });
  return html`<section class="panel viewer" aria-label=${`Record ${record.topic}-${record.partition} at ${record.offset}`}>
    <header>
      <h2 class="wrap">${record.topic}-${record.partition} <span class="muted">@</span> ${record.offset}</h2>
      ${record.masked && html`<${Badge} kind="warn">masked<//>`}
      <div class="end row">
        <button type="button" class="button quiet" onClick=${() => copy(new URL(linkTo(record), location.href).href, "Link copied")}>Copy link</button>
        ${onClose && html`<button type="button" class="button quiet icon" aria-label="Close the record" onClick=${onClose}>×</button>`}
      </div>
    </header>
    <div class="body stack tight">
      <${Facts} items=${[
        ["Time", html`<${Time} ms=${record.timestamp} />${record.timestamp_type === "LogAppendTime" ? html` <span class="muted small">set by the broker</span>` : ""}`],
        ["Key", key === null ? html`<span class="tree-null">null</span>` : html`<code>${key}</code>`],
      ]} />
      <div class="row"><${Segmented} label="Part of the record" value=${view} options=${VIEWS} onChange=${setView} /></div>
      ${whole.error && !whole.data && html`<${Problem} error=${whole.error} />`}
      ${view === "value" && html`<${DatumView} datum=${record.value} root="value" onColumn=${onColumn} onFilter=${onFilter} />`}
      ${view === "key" && html`<${DatumView} datum=${record.key} root="key" onColumn=${onColumn} onFilter=${onFilter} />`}
      ${view === "headers" && html`<${Headers} headers=${record.headers} onColumn=${onColumn} onFilter=${onFilter} />`}
      ${view === "details" && html`<${Details} record=${record} />`}
      ${view === "copy" && html`<${CopyAs} record=${record} />`}
      ${original}
    </div>
    <div class="body row viewer-actions">
      <${Action} disabled=${!whole.data} onClick=${() => setDialog("produce")}>Produce again…<//>
      <${Action} onClick=${() => setDialog("copy")}>Copy to a topic…<//>
      ${history && html`<a class="button" href=${history}>History of the key</a>`}${trace && html`<a class="button" href=${trace}>Where else is it?</a>`}
    </div>
    ${dialog === "produce" && html`<${ProduceDialog} topic=${record.topic} like=${record} onClose=${() => setDialog(null)} />`}
    ${dialog === "copy" && html`<${CopyDialog} record=${record} onClose=${() => setDialog(null)} />`}
  </section>`;
}

function DatumView({ datum, root, onColumn, onFilter }) {
  const { ok, value } = structure(datum);
  const [how, setHow] = useState(ok ? "tree" : "text");
  useEffect(() => setHow(ok ? "tree" : "text"), [ok]);
  if (datum === null) return html`<p class="muted">null: ${root === "value" ? "a tombstone; compaction removes the key" : "the record has no key"}.</p>`;
  const forms = [ok && ["tree", "Tree"], ["text", "Text"], ["hex", "Bytes"]].filter(Boolean);
  const text = pretty(datum);
  return html`<div class="stack tight">
    <div class="row">
      <${Segmented} label="How it is shown" value=${how} options=${forms} onChange=${setHow} />
      <span class="muted small">${datum.format}${datum.schema && html`, <${SchemaOf} schema=${datum.schema} />`}, ${bytes(datum.size)}</span>
      <button type="button" class="button quiet" onClick=${() => copy(text)}>Copy</button>
    </div>
    ${how === "tree" && ok && html`<${Tree} value=${value} root=${[root]} onColumn=${onColumn} onFilter=${onFilter} />`}
    ${how === "text" && html`<pre class="text-view" tabindex="0" aria-label=${`Text of the ${root}`}>${text}</pre>`}
    ${how === "hex" && (datum.base64 === undefined ? html`<p class="muted">Reading the bytes…</p>` : html`<${Hex} bytes=${decodeBase64(datum.base64)} label=${`Bytes of the ${root}`} />`)}
    ${datum.truncated && html`<p class="muted small">Only the beginning is shown.</p>`}
    <${Tried} datum=${datum} />
  </div>`;
}

/** The id of a schema, and the version that it is. */
const SchemaOf = ({ schema: { id, subject, version } }) =>
  html`schema ${id}${subject && html` (<a href=${address(path`/schemas/${subject}`, { version })}>${subject} v${version}</a>)`}`;

/** Why earlier guesses of the format failed. */
const Tried = ({ datum }) =>
  datum?.tried?.length > 0 &&
  html`<details class="small"><summary class="muted">Why it is ${datum.format} and nothing else</summary>
    <ul class="tried">${datum.tried.map(({ format, why }) => html`<li key=${format}><span class="strong">${format}</span>: ${why}</li>`)}</ul>
  </details>`;

function Headers({ headers, onColumn, onFilter }) {
  if (!headers?.length) return html`<p class="muted">The record has no headers.</p>`;
  return html`<ul class="header-list">
    ${headers.map(({ name, value }, i) => {
      const text = line(value, 4000);
      const spelled = `headers[${JSON.stringify(name)}]`;
      return html`<li key=${i}>
        <div class="row"><code class="strong wrap">${name}</code><span class="muted small">${value ? value.format : ""}</span>
          ${onColumn && html`<button type="button" class="link-button small" onClick=${() => onColumn(spelled)}>column</button>`}
          ${onFilter && text !== null && html`<button type="button" class="link-button small" onClick=${() => onFilter(`${spelled} == ${JSON.stringify(text)}`)}>filter</button>`}
        </div>
        ${text === null ? html`<span class="tree-null">null</span>` : html`<code class="wrap">${text}</code>`}
        <${Tried} datum=${value} />
      </li>`;
    })}
  </ul>`;
}

function Details({ record }) {
  const part = (datum) => (datum ? html`${datum.format}, ${bytes(datum.size)}${datum.schema && html`, <${SchemaOf} schema=${datum.schema} />`}` : "null");
  return html`<${Facts} items=${[
    ["Topic", html`<a href=${path`/topics/${record.topic}`}>${record.topic}</a>`],
    ["Partition", record.partition],
    ["Offset", record.offset],
    ["Timestamp", html`${record.timestamp} <span class="muted">${record.timestamp_type}</span>`],
    ["Size", bytes(record.size)],
    ["Key", part(record.key)],
    ["Value", part(record.value)],
    ["Headers", plural(record.headers?.length ?? 0, "header")],
  ]} />`;
}

export const SNIPPETS = [["python", "Python"], ["pyspark", "PySpark"], ["kcat", "kcat"], ["ottla", "ottla"], ["curl", "curl"], ["json", "JSON"]];

function CopyAs({ record }) {
  const [how, setHow] = useState("python");
  const snippets = useData(address(path`/api/topics/${record.topic}/snippets`, { from: record.offset, partitions: record.partition, limit: 1, order: "oldest" }));
  const json = () => JSON.stringify({ ...record, key: record.key?.text ?? null, value: record.value?.text ?? null, headers: record.headers?.map(({ name, value }) => [name, value?.text ?? null]) }, null, 2);
  return html`<div class="stack tight">
    <${Segmented} label="Copy as" value=${how} options=${SNIPPETS} onChange=${setHow} />
    ${how === "json" ? html`<${Command} text=${json()} label="JSON" />` : html`<${Loaded} of=${snippets}>${(found) => html`<${Command} text=${found[how] ?? ""} label=${how} />`}<//>`}
  </div>`;
}

/** A record that is only known by its place. */
export function RecordAt({ topic, partition, offset, ...rest }) {
  const found = useData(apiPath({ topic, partition, offset }));
  return html`<${Loaded} of=${found}>${(record) => html`<${RecordViewer} record=${record} ...${rest} />`}<//>`;
}
