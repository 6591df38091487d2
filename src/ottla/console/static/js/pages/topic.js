// One topic: partitions live, settings, consumers, producers, ACLs, and the way of a record through a partition.
import { html, useState } from "../html.js";
import { del, post, useData, useLive } from "../api.js";
import { AclTable } from "../acl-table.js";
import { Spark, useTrail } from "../chart.js";
import { Configs } from "../configs.js";
import { bytes, compact, count, duration, plural, rate, shell } from "../format.js";
import { Action, ActionDialog, Ago, Badge, Empty, Field, Figures, Loaded, Page, Panel, STAY, State, Tabs, bootstrap, currentTab } from "../parts.js";
import { ProduceDialog } from "../record/dialogs.js";
import { go, path } from "../router.js";
import { Table, useSort } from "../table.js";
import { Teaching } from "../teaching.js";

export default function Topic({ topic }) {
  const live = useLive(path`/api/live/topics/${topic}`);
  const found = useData(path`/api/topics/${topic}`);
  const [dialog, setDialog] = useState(null);
  const tabs = [
    { id: "partitions", title: "Partitions" },
    { id: "records", title: "Records", href: path`/topics/${topic}/records` },
    { id: "consumers", title: "Consumers" },
    { id: "configs", title: "Settings" },
    { id: "producers", title: "Producers" },
    { id: "acls", title: "ACLs" },
    { id: "partition", title: "A record's way" },
  ];
  const tab = currentTab(tabs);
  const head = { ...found.data, ...live.head };
  const partitions = live.loading ? (found.data?.partitions ?? []) : live.list;
  const sum = (name) => (partitions.some((row) => row[name] === null || row[name] === undefined) ? null : partitions.reduce((total, row) => total + row[name], 0));
  const records = partitions.some((row) => row.high_watermark === null || row.log_start === null) ? head.records : sum("high_watermark") - sum("log_start");
  const outOfSync = partitions.filter((row) => row.isr.length < row.replicas.length).length;
  const offline = partitions.filter((row) => row.leader === null || row.leader < 0).length;
  const close = (result) => (setDialog(null), result && found.reload());
  const trail = useTrail(head.records_per_s, head.as_of_ms);
  return html`<${Page} title=${topic}
    badge=${html`${offline > 0 && html`<${Badge} kind="bad">${plural(offline, "partition")} without a leader<//>`}${outOfSync > 0 && html`<${Badge} kind="warn">${plural(outOfSync, "partition")} out of sync<//>`}${head.internal && html`<${Badge} plain>internal<//>`}`}
    actions=${html`<a class="button main-action" href=${path`/topics/${topic}/records`}>Records</a>
      <${Action} onClick=${() => setDialog("produce")}>Produce…<//>
      <${Action} needs="admin" onClick=${() => setDialog("partitions")}>Add partitions…<//>
      <${Action} needs="admin" onClick=${() => setDialog("purge")}>Delete records…<//>
      <${Action} needs="admin" kind="danger" onClick=${() => setDialog("delete")}>Delete…<//>`}
    tabs=${html`<${Tabs} items=${tabs} />`}>
    <${Loaded} of=${found}>${() => html`
      <${Figures} items=${[
        { label: "Records", value: compact(records), note: records >= 10000 ? count(records) : "", href: path`/topics/${topic}/records` },
        { label: "Written", value: rate(head.records_per_s), spark: html`<${Spark} values=${trail} label="Records per second while this page is open" />` },
        { label: "Size", value: bytes(head.log_bytes), note: head.replica_bytes ? `${bytes(head.replica_bytes)} with replicas` : "" },
        { label: "Partitions", value: count(partitions.length), note: `${plural(head.replication_factor, "replica")} each` },
        { label: "Cleanup", value: head.cleanup_policy ?? "–" },
      ]} />
      ${tab === "partitions" && html`<${Partitions} topic=${topic} partitions=${partitions} />`}
      ${tab === "consumers" && html`<${Consumers} topic=${topic} />`}
      ${tab === "configs" && html`<${TopicConfigs} topic=${topic} />`}
      ${tab === "producers" && html`<${Producers} topic=${topic} />`}
      ${tab === "acls" && html`<${Acls} topic=${topic} />`}
      ${tab === "partition" && html`<${Teaching} topic=${topic} partitions=${partitions} />`}
    `}<//>
    ${dialog === "produce" && html`<${ProduceDialog} topic=${topic} onClose=${close} />`}
    ${dialog === "partitions" && html`<${AddPartitions} topic=${topic} now=${partitions.length} onClose=${close} />`}
    ${dialog === "purge" && html`<${DeleteRecords} topic=${topic} onClose=${close} />`}
    ${dialog === "delete" && html`<${ActionDialog} title=${`Delete ${topic}`} verb="Delete the topic" danger confirm=${topic} command=${`ottla topic delete ${shell(topic)}${bootstrap()}`}
      run=${() => del(path`/api/topics/${topic}`)} done=${`Topic ${topic} was deleted`} onClose=${(result) => (setDialog(null), result && go("/topics"))}>
      <p>The topic and its ${count(records)} records are lost for good.</p>
    <//>`}
  <//>`;
}

const brokers = (list) => (list?.length ? list.join(", ") : "–");

function Partitions({ topic, partitions }) {
  const [sort, onSort] = useSort("partition");
  return html`<${Panel} flush label="Partitions">
    <${Table} label="Partitions" rows=${partitions} inMemory sort=${sort} onSort=${onSort} rowKey=${({ partition }) => partition}
      open=${({ partition }) => path`/topics/${topic}` + `/records?partitions=${partition}`}
      columns=${[
        { key: "partition", title: "Partition", sort: true, width: 104 },
        { key: "leader", title: "Leader", sort: true, width: 78, cell: (row) => (row.leader === null || row.leader < 0 ? html`<span class="bad strong">none</span>` : html`<a href=${path`/brokers/${row.leader}`}>${row.leader}</a>`) },
        { key: "replicas", title: "Replicas", width: 88, wideOnly: true, cell: (row) => brokers(row.replicas) },
        { key: "isr", title: "In sync (ISR)", width: 110, cell: (row) => html`<span class=${row.isr.length < row.replicas.length ? "warn strong" : ""}>${brokers(row.isr)}</span>` },
        { key: "log_start", title: "Start", number: true, sort: true, min: 76, wideOnly: true, cell: (row) => count(row.log_start) },
        { key: "last_stable", title: "Last stable", number: true, sort: true, width: 104, cell: (row) => html`<span class=${row.last_stable < row.high_watermark ? "warn" : ""}>${count(row.last_stable)}</span>` },
        { key: "high_watermark", title: "High watermark", number: true, sort: true, width: 134, cell: (row) => count(row.high_watermark) },
        { key: "log_end", title: "Log end", number: true, sort: true, min: 82, cell: (row) => count(row.log_end) },
        { key: "records_per_s", title: "Written", number: true, sort: true, width: 88, cell: (row) => rate(row.records_per_s) },
        { key: "log_bytes", title: "Size", number: true, sort: true, width: 80, wideOnly: true, cell: (row) => bytes(row.log_bytes) },
        { key: "leader_epoch", title: "Epoch", number: true, sort: true, width: 70, wideOnly: true },
      ]} />
  <//>`;
}

function TopicConfigs({ topic }) {
  const at = path`/api/topics/${topic}/configs`;
  const found = useData(at);
  return html`<${Loaded} of=${found}>${({ configs }) => html`<${Configs} configs=${configs} at=${at} kind="topic" name=${topic} reload=${found.reload} />`}<//>`;
}

function Consumers({ topic }) {
  const found = useData(path`/api/topics/${topic}/consumers`, { every: 3 });
  const [sort, onSort] = useSort("-lag");
  return html`<${Loaded} of=${found}>${({ groups }) => html`<${Panel} flush label="Consumers">
    <${Table} label="Groups that read this topic" rows=${groups} inMemory sort=${sort} onSort=${onSort} rowKey=${({ group }) => group} open=${({ group }) => path`/groups/${group}`}
      empty=${html`<${Empty} title="No group has committed offsets of this topic" />`}
      columns=${[
        { key: "group", title: "Group", sort: true, cell: ({ group }) => html`<a href=${path`/groups/${group}`}>${group}</a>` },
        { key: "state", title: "State", sort: true, width: 150, cell: (row) => html`<${State} state=${row.state} />` },
        { key: "members", title: "Members", number: true, sort: true, width: 96, cell: (row) => count(row.members) },
        { key: "lag", title: "Lag", number: true, sort: true, width: 100, cell: (row) => count(row.lag) },
        { key: "lag_s", title: "In time", number: true, sort: true, width: 110, cell: (row) => duration(row.lag_s) },
        { key: "lead", title: "Lead", number: true, sort: true, width: 100, wideOnly: true, cell: (row) => count(row.lead) },
      ]} />
  <//>`}<//>`;
}

function Producers({ topic }) {
  const found = useData(path`/api/topics/${topic}/producers`, { every: 5 });
  const [sort, onSort] = useSort("partition");
  return html`<${Loaded} of=${found}>${({ producers }) => html`<${Panel} flush label="Producers">
    <${Table} label="Active producers" rows=${producers} inMemory sort=${sort} onSort=${onSort} rowKey=${(row) => `${row.partition}/${row.producer_id}`}
      empty=${html`<${Empty} title="No active producers">Only idempotent and transactional producers leave a trace.<//>`}
      columns=${[
        { key: "partition", title: "Partition", number: true, sort: true, width: 100 },
        { key: "producer_id", title: "Producer id", number: true, sort: true, width: 130 },
        { key: "producer_epoch", title: "Epoch", number: true, width: 80 },
        { key: "last_sequence", title: "Last sequence", number: true, min: 120, cell: (row) => count(row.last_sequence) },
        { key: "last_timestamp_ms", title: "Last wrote", number: true, sort: true, width: 140, cell: (row) => html`<${Ago} ms=${row.last_timestamp_ms} />` },
        { key: "transaction_start_offset", title: "Transaction since offset", number: true, min: 170, cell: (row) => (row.transaction_start_offset === null || row.transaction_start_offset < 0 ? html`<span class="muted">none</span>` : count(row.transaction_start_offset)) },
      ]} />
  <//>`}<//>`;
}

function Acls({ topic }) {
  const found = useData(path`/api/topics/${topic}/acls`);
  return html`<${Loaded} of=${found}>${(data) => html`<${AclTable} ...${data} reload=${found.reload} about=${{ type: "topic", name: topic }} />`}<//>`;
}

function AddPartitions({ topic, now, onClose }) {
  const [many, setMany] = useState(String(now + 1));
  return html`<${ActionDialog} title=${`Add partitions to ${topic}`} verb="Add" ready=${Number(many) > now} command=${`ottla topic alter ${shell(topic)} --partitions ${many || now + 1}${bootstrap()}`}
    run=${() => post(path`/api/topics/${topic}/partitions`, { count: Number(many) })} done=${`${topic} has ${many} partitions`} onClose=${onClose}>
    <p>It has ${count(now)} now, and never fewer again. Records of a key go to another partition from then on.</p>
    <${Field} label="Partitions then"><input type="number" min=${now + 1} value=${many} autofocus onInput=${(event) => setMany(event.currentTarget.value)} /><//>
  <//>`;
}

function DeleteRecords({ topic, onClose }) {
  const [before, setBefore] = useState("end");
  const [preview, setPreview] = useState(null);
  const body = (execute) => ({ before, execute });
  const at = path`/api/topics/${topic}/delete-records`;
  const total = preview?.partitions.reduce((sum, row) => sum + row.deleted, 0);
  return html`<${ActionDialog} title=${`Delete records of ${topic}`} verb=${preview ? `Delete ${count(total)} records` : "Show what would be deleted"} danger=${Boolean(preview)} confirm=${preview ? topic : undefined}
    command=${`ottla delete-records ${shell(topic)} --before ${shell(before || "end")}${bootstrap()}`}
    run=${async () => {
      if (preview) return post(at, body(true));
      setPreview(await post(at, body(false)));
      return STAY;
    }}
    done=${`${count(total)} records of ${topic} were deleted`} onClose=${onClose}>
    <${Field} label="Delete what is before" hint="end (everything), an offset, -5 (the last five stay), 7d (ago), or a time"><input class="mono" value=${before} onInput=${(event) => (setBefore(event.currentTarget.value), setPreview(null))} /><//>
    ${preview && html`<${Table} label="What is deleted" rows=${preview.partitions} rowKey=${({ partition }) => partition} columns=${[
      { key: "partition", title: "Partition", width: 90 },
      { key: "log_start", title: "Start now", number: true, cell: (row) => count(row.log_start) },
      { key: "before", title: "Start then", number: true, cell: (row) => count(row.before) },
      { key: "deleted", title: "Deleted", number: true, cell: (row) => count(row.deleted) },
    ]} />`}
  <//>`;
}
