// Where is my record: a key, a header or a text over all topics of a pipeline, with the time between hops.
import { html, useEffect, useState } from "../html.js";
import { useData } from "../api.js";
import { bytes, compact, count, duration, plural } from "../format.js";
import { Badge, Empty, Field, Page, Panel, Problem, Select, Time } from "../parts.js";
import { line } from "../record/datum.js";
import { useSearch } from "../record/search.js";
import { linkTo } from "../record/viewer.js";
import { address, path, place, setQuery } from "../router.js";

const BY = [["key", "Key"], ["header", "Header, as name:value"], ["search", "Text"]];

export default function Trace() {
  const { query } = place.value;
  const given = Object.fromEntries(["pipeline", "topics", "key", "header", "search", "from"].map((name) => [name, query.get(name)]));
  const by = BY.map(([name]) => name).find((name) => given[name] !== null) ?? "key";
  const pipelines = useData("/api/pipelines");
  const [draft, setDraft] = useState({ by, text: given[by] ?? "", pipeline: given.pipeline ?? "", topics: given.topics ?? "" });
  useEffect(() => setDraft({ by, text: given[by] ?? "", pipeline: given.pipeline ?? "", topics: given.topics ?? "" }), [query.toString()]);
  const change = (changes) => setDraft({ ...draft, ...changes });
  const ready = given[by] && (given.pipeline || given.topics);
  const found = useSearch(ready ? address("/api/trace", given) : null);
  const submit = (event) => {
    event.preventDefault();
    setQuery({ key: null, header: null, search: null, pipeline: draft.pipeline || null, topics: draft.pipeline ? null : draft.topics || null, [draft.by]: draft.text }, { replace: false });
  };
  return html`<${Page} title="Where is my record">
    <form class="panel" onSubmit=${submit} role="search" novalidate><div class="body toolbar">
      <${Select} label="Look for" value=${draft.by} options=${BY} onChange=${(value) => change({ by: value })} />
      <input class="grow" aria-label="What to look for" value=${draft.text} spellcheck=${false} autocomplete="off" onInput=${(event) => change({ text: event.currentTarget.value })} />
      <${Select} label="Pipeline" value=${draft.pipeline} options=${[["", "These topics:"], ...(pipelines.data?.pipelines ?? []).map(({ pipeline }) => [pipeline, `Topics of ${pipeline}`])]} onChange=${(pipeline) => change({ pipeline })} />
      ${!draft.pipeline && html`<input class="grow" aria-label="Topics, with commas" placeholder="orders,orders-clean,revenue" value=${draft.topics} spellcheck=${false} autocomplete="off" onInput=${(event) => change({ topics: event.currentTarget.value })} />`}
      <button class="button main-action" disabled=${!draft.text || !(draft.pipeline || draft.topics)}>Look</button>
    </div></form>
    ${found.error && html`<${Problem} error=${found.error} />`}
    ${ready && html`<div class="told" role="status">
      ${found.running && html`<span class="row"><span class="spinner"></span>Looking</span>`}<span class="strong">${plural(found.hops.length, "record")}</span>
      ${found.progress && html`<span class="muted">scanned ${compact(found.progress.records)} records, ${bytes(found.progress.bytes)} in ${duration(found.progress.elapsed_s)}</span>`}
      ${found.end && html`<span class=${found.end.complete ? "good" : "warn"}>${found.end.complete ? "All of it was scanned." : "Not everything was scanned."}</span>`}
    </div>`}
    ${!ready && html`<${Panel} label="Hops"><${Empty} title="Follow a record through topics">Name a key, a header such as a trace id, or a text, and the topics it passes.<//><//>`}
    ${ready && !found.running && found.hops.length === 0 && !found.error && html`<${Panel} label="Hops"><${Empty} title="It is in none of the topics" /><//>`}
    <ol class="history">
      ${found.hops.map(({ topic, record, after_ms: after }, i) => html`<li key=${`${topic}/${record.partition}:${record.offset}`}>
        ${i > 0 && html`<div class="hop small muted">↓ ${duration((after ?? 0) / 1000)} later</div>`}
        <div class="panel"><header>
          <a class="strong" href=${path`/topics/${topic}`}>${topic}</a>
          <a href=${linkTo(record)}>partition ${record.partition}, offset ${count(record.offset)}</a><${Time} ms=${record.timestamp} />
          ${i > 0 && i === found.hops.length - 1 && html`<${Badge} kind="info" plain>${duration((record.timestamp - found.hops[0].record.timestamp) / 1000)} in all<//>`}
        </header><div class="body"><div class="mono clip">${line(record.value) ?? "null"}</div></div></div>
      </li>`)}
    </ol>
  <//>`;
}
