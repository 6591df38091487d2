// One group: lag and lead in records and in time, its course, members, reset with preview.
import { html, useState } from "../html.js";
import { del, post, useData, useLive } from "../api.js";
import { Chart, Spark } from "../chart.js";
import { compact, count, duration, plural, rate, shell } from "../format.js";
import { Action, ActionDialog, Badge, Empty, Field, Figures, Loaded, Page, Panel, STAY, Select, State, Tabs, bootstrap, currentTab } from "../parts.js";
import { address, go, path } from "../router.js";
import { Table, useSort } from "../table.js";

const TABS = [{ id: "partitions", title: "Partitions" }, { id: "members", title: "Members" }, { id: "history", title: "History" }];

export default function Group({ group }) {
  const found = useData(path`/api/groups/${group}`, { every: 10 });
  const live = useLive(path`/api/live/groups/${group}`);
  const history = useData(path`/api/groups/${group}/history`, { every: 10 });
  const [dialog, setDialog] = useState(null);
  const tab = currentTab(TABS);
  const head = { ...found.data, ...live.head };
  const partitions = live.loading ? (found.data?.partitions ?? []) : live.list;
  const points = history.data?.points ?? [];
  const leads = partitions.map(({ lead }) => lead).filter((lead) => lead !== null && lead !== undefined);
  const members = found.data?.members ?? [];
  const close = (result) => (setDialog(null), result && (found.reload(), history.reload()));
  const busy = members.length > 0;
  return html`<${Page} title=${group} badge=${html`<${State} state=${head.state} />`}
    actions=${html`<${Action} kind="main-action" onClick=${() => setDialog("reset")}>Reset offsets…<//>
      <${Action} needs="admin" onClick=${() => setDialog("forget")}>Delete offsets of a topic…<//>
      <${Action} needs="admin" kind="danger" disabled=${busy} onClick=${() => setDialog("delete")}>Delete…<//>`}
    tabs=${html`<${Tabs} items=${TABS} />`}>
    <${Loaded} of=${found}>${(data) => html`
      <${Figures} items=${[
        { label: "Lag", value: compact(head.lag), note: "records behind the log end" },
        { label: "Lag in time", value: duration(head.lag_s), note: "age of the oldest record not read" },
        { label: "Smallest lead", value: leads.length ? compact(Math.min(...leads)) : "–", note: "records until retention reaches it" },
        { label: "Commits", value: rate(points.at(-1)?.committed_per_s), note: "offsets committed per second", spark: html`<${Spark} values=${points.map(({ committed_per_s: value }) => value)} label="Commits per second, up to an hour" />` },
        { label: "Members", value: count(members.length), note: `${data.type ?? ""} ${data.protocol ?? ""}` },
        { label: "Coordinator", value: data.coordinator ?? "–", href: data.coordinator !== null && data.coordinator !== undefined ? path`/brokers/${data.coordinator}` : undefined },
      ]} />
      ${tab === "partitions" && html`
        <${Panel} title="Lag"><${LagChart} points=${points} height=${150} /><//>
        <${Partitions} partitions=${partitions} group=${group} />`}
      ${tab === "members" && html`<${Members} members=${members} />`}
      ${tab === "history" && html`<${History} points=${points} />`}
    `}<//>
    ${dialog === "reset" && html`<${Reset} group=${group} partitions=${partitions} busy=${busy} onClose=${close} />`}
    ${dialog === "forget" && html`<${DeleteOffsets} group=${group} partitions=${partitions} onClose=${close} />`}
    ${dialog === "delete" && html`<${ActionDialog} title=${`Delete ${group}`} verb="Delete the group" danger confirm=${group} command=${`ottla group delete ${shell(group)}${bootstrap()}`} done=${`Group ${group} was deleted`}
      run=${() => del(path`/api/groups/${group}`)} onClose=${(result) => (setDialog(null), result && go("/groups"))}><p>Its committed offsets are lost: its consumers begin where auto.offset.reset says.</p><//>`}
  <//>`;
}

const LagChart = ({ points, height }) => html`<${Chart} label="Lag" height=${height} times=${points.map(({ at_ms: at }) => at)}
  series=${[{ label: "Records", values: points.map(({ lag }) => lag) }, { label: "In time", scale: "time", values: points.map(({ lag_s: seconds }) => seconds), format: duration }]}
  empty="The course of the lag is drawn once the console has seen it twice." />`;

const History = ({ points }) => html`<div class="stack">
  <${Panel} title="Lag, up to an hour"><${LagChart} points=${points} height=${260} /><//>
  <${Panel} title="Offsets committed per second"><${Chart} label="Offsets committed per second" height=${180} times=${points.map(({ at_ms: at }) => at)} series=${[{ label: "Committed", values: points.map(({ committed_per_s: value }) => value), format: (value) => rate(value) }]} /><//>
</div>`;

function Partitions({ partitions, group }) {
  const [sort, onSort] = useSort("-lag");
  return html`<${Panel} flush label="Partitions">
    <${Table} label="Partitions" rows=${partitions} inMemory sort=${sort} onSort=${onSort} rowKey=${(row) => `${row.topic}-${row.partition}`}
      open=${(row) => address(path`/topics/${row.topic}/records`, { from: `group:${group}`, partitions: row.partition, order: "oldest" })}
      empty=${html`<${Empty} title="The group has committed nothing" />`}
      columns=${[
        { key: "topic", title: "Topic", sort: true, min: 150, cell: (row) => html`<a href=${path`/topics/${row.topic}`}>${row.topic}</a>` },
        { key: "partition", title: "Partition", number: true, sort: true, width: 92 },
        { key: "committed", title: "Committed", number: true, sort: true, width: 120, cell: (row) => count(row.committed) },
        { key: "log_end", title: "Log end", number: true, sort: true, width: 120, wideOnly: true, cell: (row) => count(row.log_end) },
        { key: "lag", title: "Lag", number: true, sort: true, width: 110, cell: (row) => html`<span class=${row.lag ? "strong" : ""}>${count(row.lag)}</span>` },
        { key: "lag_s", title: "In time", number: true, sort: true, width: 110, cell: (row) => duration(row.lag_s) },
        { key: "lead", title: "Lead", number: true, sort: true, width: 110, wideOnly: true, cell: (row) => html`<span class=${row.lead === 0 && row.lag ? "warn" : ""}>${count(row.lead)}</span>` },
        { key: "lead_s", title: "Lead in time", number: true, sort: true, width: 120, wideOnly: true, cell: (row) => duration(row.lead_s) },
        { key: "client", title: "Read by", min: 140, cell: (row) => (row.client ? html`<span title=${row.member}>${row.client} <span class="muted">${row.host}</span></span>` : html`<span class="muted">nobody</span>`) },
      ]} />
  <//>`;
}

function Members({ members }) {
  const [sort, onSort] = useSort("client");
  return html`<${Panel} flush label="Members">
    <${Table} label="Members" rows=${members} inMemory sort=${sort} onSort=${onSort} rowKey=${({ member }) => member} empty=${html`<${Empty} title="No members">Nobody reads as this group now.<//>`}
      columns=${[
        { key: "client", title: "Client id", sort: true, min: 140 },
        { key: "host", title: "Host", sort: true, width: 140 },
        { key: "member", title: "Member id", min: 200, mono: true, wideOnly: true },
        { key: "assignment", title: "Assigned", min: 220, tall: true, cell: ({ assignment }) => assigned(assignment ?? []) },
      ]} />
  <//>`;
}

function assigned(list) {
  const topics = new Map();
  for (const { topic, partition } of list) topics.set(topic, [...(topics.get(topic) ?? []), partition]);
  return topics.size ? [...topics].map(([topic, numbers]) => html`<div key=${topic}>${topic} <span class="muted">${numbers.sort((a, b) => a - b).join(", ")}</span></div>`) : html`<span class="muted">nothing</span>`;
}

const TARGETS = [["earliest", "The start of the log"], ["latest", "The end of the log"], ["time", "A time"], ["ago", "A time ago"], ["offset", "An offset"], ["shift", "Forward or back by"], ["group", "Where another group is"], ["current", "Where it is (commit it again)"]];
const ARGUMENT = { time: ["Time", "2026-11-19T10:00, local"], ago: ["How long ago", "1h30m"], offset: ["Offset", ""], shift: ["Records", "-100 is back"], group: ["Group", ""] };
const OPTION = { earliest: "--to-earliest", latest: "--to-latest", current: "--to-current", offset: "--to-offset", shift: "--shift-by", time: "--to-time", ago: "--by-duration" };

function Reset({ group, partitions, busy, onClose }) {
  const topics = [...new Set(partitions.map(({ topic }) => topic))].sort();
  const [chosen, setChosen] = useState("");
  const [to, setTo] = useState("earliest");
  const [argument, setArgument] = useState("");
  const [preview, setPreview] = useState(null);
  const change = (set) => (value) => (set(value), setPreview(null));
  const spelled = ARGUMENT[to] ? `${to}:${argument.trim()}` : to;
  const body = (execute) => ({ topics: chosen ? [chosen] : null, to: spelled, execute });
  const at = path`/api/groups/${group}/offsets`;
  const where = chosen ? `--topic ${shell(chosen)}` : "--all-topics";
  const command = to === "group" ? null : `ottla group reset-offsets ${shell(group)} ${where} ${OPTION[to]}${ARGUMENT[to] ? ` ${shell(argument.trim() || "…")}` : ""}${preview ? " --execute" : ""}${bootstrap()}`;
  return html`<${ActionDialog} title=${`Reset offsets of ${group}`} verb=${preview ? "Commit these offsets" : "Preview"} danger=${Boolean(preview)} wide command=${command} ready=${!ARGUMENT[to] || argument.trim() !== ""}
    run=${async () => {
      if (preview) return post(at, body(true));
      setPreview(await post(at, body(false)));
      return STAY;
    }}
    done=${(result) => `${plural(result.partitions?.length ?? 0, "offset")} of ${group} committed`} onClose=${onClose}>
    ${busy && html`<p class="notice-box">The group has members. Stop them first: the broker refuses offsets from outside while they read.</p>`}
    <div class="fields">
      <${Field} label="Topic"><${Select} label="Topic" value=${chosen} options=${[["", "All topics"], ...topics.map((topic) => [topic, topic])]} onChange=${change(setChosen)} /><//>
      <${Field} label="To"><${Select} label="To" value=${to} options=${TARGETS} onChange=${change(setTo)} /><//>
      ${ARGUMENT[to] && html`<${Field} label=${ARGUMENT[to][0]} hint=${ARGUMENT[to][1]}><input value=${argument} autocomplete="off" onInput=${(event) => change(setArgument)(event.currentTarget.value)} /><//>`}
    </div>
    ${preview?.notes?.map((note) => html`<p key=${note} class="notice-box">${note}</p>`)}
    ${preview && html`<${Table} label="Preview" rows=${preview.partitions} height="300px" rowKey=${(row) => `${row.topic}-${row.partition}`} columns=${[
      { key: "topic", title: "Topic", min: 130 },
      { key: "partition", title: "Partition", number: true, width: 84 },
      { key: "committed", title: "Now", number: true, cell: (row) => count(row.committed), min: 80 },
      { key: "new_offset", title: "Then", number: true, min: 80, cell: (row) => html`<span class="strong">${count(row.new_offset)}</span>` },
      { key: "change", title: "Change", number: true, min: 80, cell: (row) => (row.committed === null ? "–" : html`<span class=${row.new_offset < row.committed ? "warn" : ""}>${row.new_offset > row.committed ? "+" : ""}${count(row.new_offset - row.committed)}</span>`) },
      { key: "lag", title: "Lag then", number: true, min: 80, cell: (row) => count(row.lag) },
    ]} />`}
  <//>`;
}

function DeleteOffsets({ group, partitions, onClose }) {
  const topics = [...new Set(partitions.map(({ topic }) => topic))].sort();
  const [topic, setTopic] = useState(topics[0] ?? "");
  return html`<${ActionDialog} title=${`Delete offsets of ${group}`} verb="Delete the offsets" danger ready=${topic !== ""} command=${`ottla group delete-offsets ${shell(group)} --topic ${shell(topic || "TOPIC")}${bootstrap()}`}
    run=${() => post(path`/api/groups/${group}/delete-offsets`, { topics: [topic] })} done=${`${group} has no offsets of ${topic} any more`} onClose=${onClose}>
    <p>The group forgets where it was in the topic. Members that read it must be stopped.</p>
    <${Field} label="Topic"><${Select} label="Topic" value=${topic} options=${topics} onChange=${setTopic} /><//>
  <//>`;
}
