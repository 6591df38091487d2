// Producing a record, and copying one to another topic.
import { html, useState } from "../html.js";
import { post, useData } from "../api.js";
import { shell } from "../format.js";
import { ActionDialog, Check, Field, bootstrap } from "../parts.js";
import { address, path } from "../router.js";
import { pretty } from "./datum.js";

const PLAIN = new Set(["text", "json", "empty"]);
const EMPTY = { name: "", value: "", isNull: false };

/** What the server is to write: text, or the very bytes of the record that it is like, if they were not touched. */
function part(name, text, isNull, before, datum) {
  if (isNull) return { [name]: null };
  if (datum?.base64 !== undefined && text === before) return { [`${name}_base64`]: datum.base64 };
  return { [name]: text };
}

export function ProduceDialog({ topic, like, onClose, title, verb = "Produce", ready = true, goal, send, done }) {
  const before = { key: like?.key ? like.key.text : "", value: like?.value ? pretty(like.value) : "" };
  const [key, setKey] = useState(before.key);
  const [keyNull, setKeyNull] = useState(!like?.key);
  const [value, setValue] = useState(before.value);
  const [valueNull, setValueNull] = useState(Boolean(like) && like.value === null);
  const [partition, setPartition] = useState("");
  const [given] = useState(() => like?.headers?.map(({ name, value: datum }) => ({ name, value: datum?.text ?? "", isNull: datum === null, before: datum })) ?? []);
  const [headers, setHeaders] = useState(given);
  const set = (i, change) => setHeaders(headers.map((header, j) => (i === j ? { ...header, ...change } : header)));
  const body = () => ({
    ...part("key", key, keyNull, before.key, like?.key),
    ...part("value", value, valueNull, before.value, like?.value),
    headers: headers.filter(({ name }) => name).map(({ name, value: text, isNull, before: datum }) => ({ name, ...part("value", text, isNull, datum?.text, datum) })),
    partition: partition === "" ? null : Number(partition),
  });
  const changedForm = [["key", key, keyNull], ["value", value, valueNull]].find(([name, text, isNull]) => !isNull && like?.[name] && !PLAIN.has(like[name].format) && text !== before[name]);
  const words = [`ottla produce ${shell(topic)}${bootstrap()}`, !keyNull && `--key ${shell(key)}`, partition !== "" && `--partition ${partition}`, ...headers.filter(({ name }) => name).map((header) => `--header ${shell(`${header.name}=${header.value}`)}`)];
  const command = `printf %s ${shell(valueNull ? "" : value)} | ${words.filter(Boolean).join(" ")}`;
  return html`<${ActionDialog}
    title=${title ?? `Produce to ${topic}`}
    verb=${verb}
    wide
    ready=${ready}
    command=${send ? null : command}
    run=${() => (send ? send(body(), headers !== given) : post(path`/api/topics/${topic}/records`, body()))}
    done=${done ?? ((result) => `Written to ${topic}-${result.records[0].partition} at offset ${result.records[0].offset}`)}
    onClose=${onClose}
  >
    ${goal}
    <${Field} label="Key"><input value=${key} disabled=${keyNull} spellcheck=${false} class="mono" onInput=${(event) => setKey(event.currentTarget.value)} /><//>
    <${Check} label="No key (null)" checked=${keyNull} onChange=${setKeyNull} />
    <${Field} label="Value"><textarea rows="10" value=${value} disabled=${valueNull} spellcheck=${false} onInput=${(event) => setValue(event.currentTarget.value)}></textarea><//>
    <${Check} label="No value (null, a tombstone)" checked=${valueNull} onChange=${setValueNull} />
    ${like?.masked && html`<p class="notice-box">Fields of this record are hidden here. A part ${send ? "that you change" : "with such a field"} is written with *** in their place.${send ? "" : " “Copy to a topic” takes the record whole."}</p>`}
    ${changedForm && html`<p class="notice-box">The ${changedForm[0]} was ${like[changedForm[0]].format}. What you wrote is sent as text; left as it was, its bytes are sent.</p>`}
    <fieldset class="plain stack tight">
      <legend class="small muted">Headers</legend>
      ${headers.map(
        (header, i) => html`<div class="header-edit" key=${i}>
          <input aria-label="Header name" placeholder="name" value=${header.name} onInput=${(event) => set(i, { name: event.currentTarget.value })} />
          <input aria-label="Header value" placeholder="value" value=${header.value} disabled=${header.isNull} onInput=${(event) => set(i, { value: event.currentTarget.value })} />
          <button type="button" class="button quiet icon" aria-label="Remove the header" onClick=${() => setHeaders(headers.filter((_, j) => j !== i))}>×</button>
        </div>`,
      )}
      <div><button type="button" class="button" onClick=${() => setHeaders([...headers, EMPTY])}>Add a header</button></div>
    </fieldset>
    ${!send && html`<${Field} label="Partition" hint="Empty: by the key"><input type="number" min="0" value=${partition} onInput=${(event) => setPartition(event.currentTarget.value)} /><//>`}
  <//>`;
}

/** A field for a topic's name, with the names that fit. */
export function TopicField({ label, value, onInput }) {
  const found = useData(address("/api/topics", { search: value, limit: 20 }));
  return html`<${Field} label=${label}>
    <input list="topic-names" value=${value} autocomplete="off" spellcheck=${false} onInput=${(event) => onInput(event.currentTarget.value)} />
    <datalist id="topic-names">${found.data?.rows.map(({ topic }) => html`<option key=${topic} value=${topic}></option>`)}</datalist>
  <//>`;
}

export function CopyDialog({ record, onClose }) {
  const [to, setTo] = useState("");
  const { topic, partition, offset } = record;
  return html`<${ActionDialog}
    title=${`Copy ${topic}-${partition} @ ${offset}`}
    verb="Copy"
    ready=${to !== ""}
    command=${`ottla consume ${shell(topic)} --partition ${partition} --from ${offset} --max-messages 1 --format json${bootstrap()} | ottla produce ${shell(to || "TOPIC")} --format json${bootstrap()}`}
    run=${() => post(path`/api/topics/${topic}/copy`, { to, records: [{ partition, offset }], partition: null })}
    done=${(result) => `Copied to ${to}-${result.records[0].partition} at offset ${result.records[0].offset}`}
    onClose=${onClose}
  >
    <p>Key, value, headers and time are copied byte by byte.</p>
    <${TopicField} label="To topic" value=${to} onInput=${setTo} />
  <//>`;
}
