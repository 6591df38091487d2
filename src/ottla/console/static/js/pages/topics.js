// All topics, found and sorted by the server.
import { html, useState } from "../html.js";
import { post } from "../api.js";
import { bytes, compact, count, duration, rate, shell } from "../format.js";
import { Action, ActionDialog, Badge, Check, Command, Empty, Field, Page, Panel, QuerySelect, SearchField, bootstrap } from "../parts.js";
import { go, path, place, setQuery } from "../router.js";
import { Table, listFoot, useServerRows, useSort } from "../table.js";

const COLUMNS = [
  {
    key: "topic", title: "Topic", sort: "name", min: 206,
    cell: (row) => html`<a href=${path`/topics/${row.topic}`}>${row.topic}</a>${row.internal && html` <${Badge} plain>internal<//>`}${row.dead_letter && html` <${Badge} kind="warn" plain>dead letters<//>`}`,
  },
  { key: "partitions", title: "Partitions", number: true, sort: true, width: 91, cell: (row) => count(row.partitions) },
  { key: "replication_factor", title: "Replicas", number: true, sort: "replication", width: 82, wideOnly: true },
  { key: "under_replicated", title: "Out of sync", number: true, sort: true, width: 103, wideOnly: true, cell: (row) => html`<span class=${row.offline ? "bad strong" : row.under_replicated ? "warn strong" : "muted"}>${row.offline ? `${count(row.offline)} offline` : count(row.under_replicated)}</span>` },
  { key: "records", title: "Records", number: true, sort: true, width: 78, cell: (row) => compact(row.records) },
  { key: "records_per_s", title: "Written", number: true, sort: "rate", width: 78, cell: (row) => rate(row.records_per_s) },
  { key: "log_bytes", title: "Size", number: true, sort: "bytes", width: 74, cell: (row) => bytes(row.log_bytes) },
  { key: "groups", title: "Groups", number: true, sort: true, width: 72, wideOnly: true, cell: (row) => count(row.groups) },
  { key: "lag", title: "Lag", number: true, sort: true, width: 68, cell: (row) => compact(row.lag) },
  { key: "lag_s", title: "In time", number: true, width: 76, wideOnly: true, cell: (row) => duration(row.lag_s) },
  { key: "cleanup_policy", title: "Cleanup", width: 87, wideOnly: true },
];

const topicOf = ({ topic }) => topic;

export default function Topics() {
  const { query } = place.value;
  const [sort, onSort] = useSort("name");
  const [creating, setCreating] = useState(query.get("create") === "1");
  const asked = { search: query.get("search"), state: query.get("state"), internal: query.get("internal"), sort };
  const rows = useServerRows("/api/topics", "/api/live/topics", asked, topicOf);
  const filtered = asked.search || asked.state;
  return html`<${Page} title="Topics" actions=${html`<${Action} needs="admin" kind="main-action" onClick=${() => setCreating(true)}>Create a topic…<//>`}>
    <${Panel} flush label="Topics">
      <div class="body toolbar">
        <${SearchField} label="Search topics" placeholder="Part of a name, * and ?" class="grow" />
        <${QuerySelect} name="state" label="State" options=${[["", "All states"], ["under_replicated", "Out of sync"], ["offline", "Offline"]]} />
        <${Check} label="Internal topics" checked=${asked.internal === "1"} onChange=${(on) => setQuery({ internal: on }, { replace: false })} />
      </div>
      <${Table} label="Topics" columns=${COLUMNS} rows=${rows} rowKey=${topicOf} open=${({ topic }) => path`/topics/${topic}`} sort=${sort} onSort=${onSort} loading=${rows.loading} error=${rows.error}
        empty=${filtered ? html`<${Empty} title="No topic fits"><button class="link-button" onClick=${() => setQuery({ search: null, state: null })}>Show all topics</button><//>` : html`<${Empty} title="The cluster has no topics yet">A topic holds records in partitions.<//>`}
        foot=${listFoot(rows.head, "topics")} />
    <//>
    ${creating && html`<${Create} onClose=${(made) => (setCreating(false), made && go(path`/topics/${made.topic}`))} />`}
  <//>`;
}

const SETTINGS = [["cleanup.policy", ["", "delete", "compact", "compact,delete"]], ["retention.ms", null], ["retention.bytes", null], ["min.insync.replicas", null], ["compression.type", ["", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]]];

function Create({ onClose }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("3");
  const [replicas, setReplicas] = useState("");
  const [configs, setConfigs] = useState({});
  const given = Object.fromEntries(Object.entries(configs).filter(([, value]) => value !== ""));
  const words = [`ottla topic create ${shell(name || "TOPIC")}`, partitions && `--partitions ${partitions}`, replicas && `--replication-factor ${replicas}`, ...Object.entries(given).map(([key, value]) => `--config ${shell(`${key}=${value}`)}`)];
  return html`<${ActionDialog} title="Create a topic" verb="Create" ready=${name !== ""} onClose=${onClose} command=${words.filter(Boolean).join(" ") + bootstrap()}
    done=${`Topic ${name} was created`}
    run=${() => post("/api/topics", { topic: name, partitions: partitions ? Number(partitions) : null, replication_factor: replicas ? Number(replicas) : null, configs: given, validate_only: false })}>
    <${Field} label="Name"><input value=${name} autofocus spellcheck=${false} autocomplete="off" onInput=${(event) => setName(event.currentTarget.value)} /><//>
    <div class="fields">
      <${Field} label="Partitions"><input type="number" min="1" value=${partitions} onInput=${(event) => setPartitions(event.currentTarget.value)} /><//>
      <${Field} label="Replicas" hint="Empty: as the brokers have it"><input type="number" min="1" value=${replicas} onInput=${(event) => setReplicas(event.currentTarget.value)} /><//>
      ${SETTINGS.map(([key, choices]) => html`<${Field} key=${key} label=${key}>
        ${choices
          ? html`<select value=${configs[key] ?? ""} onChange=${(event) => setConfigs({ ...configs, [key]: event.currentTarget.value })}>${choices.map((choice) => html`<option key=${choice} value=${choice}>${choice || "default"}</option>`)}</select>`
          : html`<input value=${configs[key] ?? ""} placeholder="default" onInput=${(event) => setConfigs({ ...configs, [key]: event.currentTarget.value })} />`}
      <//>`)}
    </div>
  <//>`;
}
