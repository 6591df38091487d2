// One topic of dead letters: by reason and flow, the original beside a letter, edit, replay with progress.
import { html, useEffect, useState } from "../html.js";
import { call, post, useData, useLive } from "../api.js";
import { count, plural, shell } from "../format.js";
import { Action, ActionDialog, Ago, Check, Empty, Loaded, Page, Panel, Problem, Progress, STAY, SearchField, State, attempt, bootstrap } from "../parts.js";
import { line } from "../record/datum.js";
import { ProduceDialog, TopicField } from "../record/dialogs.js";
import { RecordAt, RecordViewer } from "../record/viewer.js";
import { address, path, place, setQuery } from "../router.js";
import { Table } from "../table.js";

const FILTERS = ["reason", "flow", "source", "where", "search"];

export default function DeadLetter({ topic }) {
  const { query } = place.value;
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]));
  const filtered = FILTERS.some((name) => filters[name]);
  const limit = Number(query.get("limit") ?? 50);
  const found = useData(address(path`/api/dead-letters/${topic}`, { ...filters, limit, replayed: query.get("replayed") }), { every: 10 });
  const [dialog, setDialog] = useState(null);
  const job = query.get("job");
  const [wanted] = [query.get("letter")];
  const chosen = found.data?.letters.find(({ partition, offset }) => `${partition}:${offset}` === wanted);
  const close = (result) => (setDialog(null), result && found.reload());
  return html`<${Page} title=${topic}
    actions=${html`<a class="button" href=${path`/topics/${topic}/records`}>Records</a>
      <${Action} kind="main-action" onClick=${() => setDialog({ replay: filters })}>${filtered ? "Replay what is filtered…" : "Replay all…"}<//>`}>
    ${job && html`<${Job} id=${job} onEnd=${found.reload} />`}
    <div class="toolbar">
      <${SearchField} label="Search letters" placeholder="Text in key or value" class="grow" />
      <${SearchField} name="where" label="Filter expression" placeholder="value.amount > 100" class="grow mono" />
      <${Check} label="Also replayed ones" checked=${query.get("replayed") === "1"} onChange=${(on) => setQuery({ replayed: on }, { replace: false })} />
      ${filtered && html`<button class="button" onClick=${() => setQuery(Object.fromEntries(FILTERS.map((name) => [name, null])))}>Show all</button>`}
    </div>
    <${Loaded} of=${found}>${(data) => html`
      <${Panel} title="By reason" flush>
        <${Table} label="By reason" rows=${data.reasons} rowKey=${(row) => `${row.reason}\n${row.flow}\n${row.source}`} height="260px"
          open=${(row) => void setQuery({ reason: row.reason, flow: row.flow, source: row.source, letter: null }, { replace: false })}
          empty=${html`<${Empty} title="No letters">Nothing waits here${filtered ? " that fits the filter" : ""}.<//>`}
          columns=${[
            { key: "count", title: "Letters", number: true, width: 90, cell: (row) => count(row.count) },
            { key: "reason", title: "Reason", min: 260, cell: (row) => html`<span title=${row.reason}>${row.reason}</span>` },
            { key: "flow", title: "Flow", width: 140 },
            { key: "source", title: "From topic", width: 150 },
            { key: "last_ms", title: "Last", number: true, width: 130, wideOnly: true, cell: (row) => html`<${Ago} ms=${row.last_ms} />` },
          ]} />
      <//>
      <div class=${chosen ? "with-viewer" : ""}>
        <${Panel} title="Letters" flush>
          <${Table} label="Letters" rows=${data.letters} rowKey=${({ partition, offset }) => `${partition}:${offset}`} selected=${wanted}
            open=${({ partition, offset }) => void setQuery({ letter: `${partition}:${offset}` }, { replace: false })}
            empty=${html`<${Empty} title="No letters" />`}
            columns=${[
              { key: "offset", title: "Offset", number: true, width: 96, cell: (row) => `${row.partition}:${row.offset}` },
              { key: "reason", title: "Reason", min: 180 },
              { key: "value", title: "Value", min: 200, mono: true, cell: (row) => line(row.record.value) ?? html`<span class="tree-null">null</span>` },
              !chosen && { key: "source", title: "Original", width: 160, wideOnly: true, cell: ({ source }) => (source ? `${source.topic}-${source.partition} @ ${source.offset}` : "–") },
              { key: "replayed", title: "", width: 90, cell: (row) => (row.replayed ? html`<span class="muted">replayed</span>` : "") },
            ]}
            foot=${data.complete ? null : html`<button class="link-button" onClick=${() => setQuery({ limit: limit * 2 })}>Show more letters</button>`} />
        <//>
        ${chosen && html`<div class="stack">
          <div class="row">
            <${Action} kind="main-action" onClick=${() => setDialog({ letters: [chosen] })}>Replay this one…<//>
            <${Action} onClick=${() => setDialog({ edit: chosen })}>Edit and replay…<//>
          </div>
          <${RecordViewer} key=${wanted} record=${chosen.record} onClose=${() => setQuery({ letter: null })} />
          <${Original} key=${`original ${wanted}`} ...${chosen.source} />
        </div>`}
      </div>
    `}<//>
    ${(dialog?.replay || dialog?.letters) && html`<${Replay} topic=${topic} filters=${dialog.replay} letters=${dialog.letters} onClose=${close} />`}
    ${dialog?.edit && html`<${Edit} topic=${topic} letter=${dialog.edit} onClose=${close} />`}
  <//>`;
}

function Replay({ topic, filters = {}, letters = null, onClose }) {
  const [to, setTo] = useState("");
  const [preview, setPreview] = useState(null);
  const at = path`/api/dead-letters/${topic}/replay`;
  const body = (execute) => ({ reason: null, flow: null, source: null, where: null, search: null, ...filters, to: to || null, limit: null, letters: letters?.map(({ partition, offset }) => ({ partition, offset })) ?? null, execute });
  const options = [["reason", "--reason"], ["flow", "--flow"], ["source", "--source"], ["where", "--where"], ["search", "--grep"]].map(([name, option]) => filters[name] && `${option} ${shell(filters[name])}`);
  const one = letters?.length === 1 && `--partition ${letters[0].partition} --from ${letters[0].offset} --max-messages 1`;
  const command = [`ottla dlq replay ${shell(topic)}`, one, ...options, to && `--to ${shell(to)}`].filter(Boolean).join(" ") + bootstrap();
  const total = Object.values(preview?.to ?? {}).reduce((sum, many) => sum + many, 0);
  return html`<${ActionDialog} title=${`Replay letters of ${topic}`} verb=${preview ? `Replay ${plural(total, "letter")}` : "Show what would be replayed"} ready=${!preview || total > 0} command=${command} onClose=${onClose} done="The replay has begun"
    run=${async () => {
      if (!preview) {
        setPreview(await post(at, body(false)));
        return STAY;
      }
      const started = await post(at, body(true));
      if (started.job) setQuery({ job: started.job });
      return started;
    }}>
    <p>Each letter is written once, in a transaction with the mark that it was replayed: a replay that is cut short goes on where it was.</p>
    <${TopicField} label="To topic (empty: where it came from)" value=${to} onInput=${(value) => (setTo(value), setPreview(null))} />
    ${preview && html`<ul>${Object.entries(preview.to ?? {}).map(([name, many]) => html`<li key=${name}>${plural(many, "letter")} to <code>${name}</code></li>`)}</ul>`}
    ${preview && total === 0 && html`<p>Nothing is left to replay.</p>`}
    ${Object.entries(preview?.stuck ?? {}).map(([why, many]) => html`<p key=${why} class="notice-box">${typeof many === "number" ? `${plural(many, "letter")}: ` : ""}${why}</p>`)}
  <//>`;
}

function Original({ cluster, topic, partition, offset }) {
  if (cluster) return html`<p class="muted">The original is in the cluster ${cluster}: ${topic}-${partition} @ ${offset}.</p>`;
  if (topic === null || partition === null || offset === null) return html`<p class="muted">The letter does not say where its original is.</p>`;
  return html`<h2>The original</h2><${RecordAt} topic=${topic} partition=${partition} offset=${offset} />`;
}

function Edit({ topic, letter, onClose }) {
  const { partition, offset, source } = letter;
  const [to, setTo] = useState(source.cluster ? "" : (source.topic ?? ""));
  // A list cuts long values off and has no bytes: what is edited is read whole.
  const whole = useData(address(path`/api/topics/${topic}/records/${partition}/${offset}`, { raw: 1 }));
  if (whole.error) return html`<${Problem} error=${whole.error} />`;
  if (!whole.data) return null;
  const names = new Set(letter.headers?.map(({ name }) => name));
  const like = { ...whole.data, headers: whole.data.headers.filter(({ name }) => names.has(name)) };
  const goal = html`<${TopicField} label="To topic" value=${to} onInput=${setTo} />`;
  return html`<${ProduceDialog} topic=${to} like=${like} title="Edit and replay" verb="Replay" ready=${to !== ""} goal=${goal} onClose=${onClose} done=${`The letter was replayed to ${to}`}
    send=${({ key, value, headers }, headersToo) =>
      post(path`/api/dead-letters/${topic}/edit`, { partition, offset, to, key, value, ...(headersToo && { headers }) })} />`;
}

function Job({ id, onEnd }) {
  const { head: job, error } = useLive(path`/api/live/jobs/${id}`);
  const over = job.state && job.state !== "running";
  useEffect(() => void (over && onEnd()), [over]);
  if (error) return html`<${Problem} error=${error} />`;
  return html`<${Panel} title=${job.what ?? "Replay"} end=${html`<${State} state=${job.state} />${over ? html`<button class="button quiet" onClick=${() => setQuery({ job: null })}>Close</button>` : html`<button class="button" onClick=${() => attempt(() => call("DELETE", path`/api/jobs/${id}`))}>Cancel</button>`}`}>
    <div class="stack tight">
      <div>${job.state === "done" ? `${plural(job.done, "letter")} replayed` : `${count(job.done)} of ${count(job.all)} letters`}</div>
      <${Progress} label="Replayed" done=${job.state === "done" ? 1 : (job.done ?? 0)} all=${job.state === "done" ? 1 : (job.all ?? 0)} kind=${job.state === "failed" ? "bad" : ""} />
      ${job.error && html`<${Problem} error=${typeof job.error === "string" ? { message: job.error } : job.error} />`}
    </div>
  <//>`;
}
