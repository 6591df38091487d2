// How a record passes through a partition, with the partition's own numbers: leader, followers, high watermark, who waits.
import { html, useEffect, useRef, useState } from "./html.js";
import { post, useData } from "./api.js";
import { count, duration, plural } from "./format.js";
import { Action, Badge, Loaded, Panel, Select, attempt } from "./parts.js";
import { address, path, place, setQuery } from "./router.js";

const SHOWN = 12; // offsets in sight

export function Teaching({ topic, partitions }) {
  const number = Number(place.value.query.get("partition") ?? 0);
  const found = useData(address(path`/api/topics/${topic}`, { replicas: 1 }), { every: 1 });
  return html`<div class="stack">
    <div class="toolbar">
      <${Select} label="Partition" value=${String(number)} options=${partitions.map(({ partition }) => [String(partition), `Partition ${partition}`])} onChange=${(value) => setQuery({ partition: value })} />
      <${Action} onClick=${() => attempt(() => post(path`/api/topics/${topic}/records`, { key: null, value: { sent_by: "console" }, headers: [], partition: number }), "One record was written: follow it below")}>Write one record to this partition<//>
    </div>
    <${Loaded} of=${found}>${(data) => {
      const partition = data.partitions.find((row) => row.partition === number);
      return partition ? html`<${Way} topic=${topic} row=${partition} /><${Metadata} topic=${topic} number=${number} />` : html`<p>${topic} has no partition ${number}.</p>`;
    }}<//>
  </div>`;
}

function Way({ topic, row }) {
  const { leader, log_start: start, log_end: end, high_watermark: watermark, last_stable: stable, replica_states: states = [] } = row;
  const from = Math.max(start ?? 0, (end ?? 0) - SHOWN + 1);
  const offsets = Array.from({ length: SHOWN }, (_, i) => from + i);
  const before = useRef(end);
  const [fresh, setFresh] = useState(null);
  useEffect(() => {
    if (end > before.current) setFresh(end - 1);
    before.current = end;
  }, [end]);
  const ordered = [...states].sort((a, b) => Number(b.broker === leader) - Number(a.broker === leader) || a.broker - b.broker);
  const replicas = ordered.length ? ordered : row.replicas.map((broker) => ({ broker, log_end: broker === leader ? end : null, in_sync: row.isr.includes(broker) }));
  const waiting = useData(leader === null ? null : address(path`/api/brokers/${leader}/waiting`, { topic, partition: row.partition }), { every: 1 }).data;
  return html`<${Panel} title=${`${topic}-${row.partition}`} flush>
    <div class="way" tabindex="0" role="region" aria-label="Replicas and their offsets">
      <div class="way-grid" role="table" aria-label=${`Replicas of ${topic}-${row.partition}`}>
        <div class="way-row way-scale" role="row">
          <span role="columnheader">Offset</span>
          ${offsets.map((offset) => html`<span key=${offset} role="columnheader" class="way-offset">${offset}</span>`)}
        </div>
        ${replicas.map((replica) => html`<div class="way-row" role="row" key=${replica.broker}>
          <span class="way-name" role="rowheader">Broker ${replica.broker} ${replica.broker === leader ? html`<${Badge} kind="info" plain>leader<//>` : replica.in_sync ? html`<${Badge} kind="good" plain>in sync<//>` : html`<${Badge} kind="warn" plain>behind<//>`}</span>
          ${offsets.map((offset) => {
            const has = replica.log_end !== null && offset < replica.log_end;
            const state = !has ? "none" : offset < stable ? "stable" : offset < watermark ? "committed" : "written";
            const words = { none: "not there", stable: "readable by all", committed: "readable without read_committed", written: "not committed yet" }[state];
            return html`<span key=${offset} role="cell" class="way-cell ${state} ${offset === fresh ? "fresh" : ""}" title=${`Offset ${offset}: ${words}`}><span class="sr">${words}</span></span>`;
          })}
        </div>`)}
        <div class="way-row way-marks" role="row">
          <span role="rowheader" class="muted small">Marks</span>
          ${offsets.map((offset) => html`<span key=${offset} role="cell" class="way-mark">${[offset === stable && "LSO", offset === watermark && "HW", offset === end && "LEO"].filter(Boolean).join(" ")}</span>`)}
        </div>
      </div>
    </div>
    <div class="body stack tight">
      <ol class="steps">
        <li class=${end > watermark ? "now" : ""}><span class="strong">The producer sends to the leader</span>, broker ${leader}. It checks the batch, gives it the next offset and appends it: the log end (LEO) is now ${count(end)}.</li>
        <li class=${end > watermark ? "now" : ""}><span class="strong">Followers fetch.</span> ${row.replicas.length === 1 ? "This partition has one replica, so there are none." : `The ${plural(row.replicas.length - 1, "other replica")} asks the leader for what comes after its own log end, and by that tells it how far it is.`}</li>
        <li class=${end > watermark ? "now" : ""}><span class="strong">The high watermark moves</span> when all replicas in sync have the record. It is ${count(watermark)}: ${end === watermark ? "every record is committed." : `${plural(end - watermark, "record")} wait for ${plural(row.isr.length, "replica")} in sync.`}</li>
        <li><span class="strong">Those who wait are answered.</span> A produce with acks=all and a fetch with nothing to read wait in the leader's purgatory until the high watermark passes their offset, or their time is over. <${Waiting} of=${waiting} /></li>
        <li class=${watermark > stable ? "now" : ""}><span class="strong">Consumers read up to the high watermark</span>; with read_committed up to the last stable offset (LSO), ${count(stable)}: ${watermark === stable ? "no transaction is open." : "a transaction is open since there."}</li>
      </ol>
      <p class="legend small"><span class="way-cell stable"></span> committed <span class="way-cell committed"></span> in an open transaction <span class="way-cell written"></span> written, not committed yet <span class="way-cell none"></span> not on this replica</p>
    </div>
  <//>`;
}

/** The requests in the purgatory of the leader that wait for this partition. */
function Waiting({ of }) {
  if (!of) return null;
  if (!of.told) return html`<span class="muted">Who waits is not known: ${of.why}.</span>`;
  const others = of.others > 0 && html` <span class="muted">${plural(of.others, "request")} for other partitions or groups.</span>`;
  if (!of.requests.length) return html`Nobody waits for this partition now.${others}`;
  const shown = of.requests.slice(0, 8);
  return html`${plural(of.requests.length, "request")} wait${of.requests.length === 1 ? "s" : ""} for this partition now.${others}
    <ul class="waiting">${shown.map(({ request, client, address, seconds }) => html`<li key=${address}><span class="strong">${request.replace(/_/g, " ")}</span> of ${client ?? "a client without a name"} <span class="muted">(${address}) for ${duration(seconds)}</span></li>`)}</ul>
    ${of.requests.length > shown.length && html`<span class="muted">and ${count(of.requests.length - shown.length)} more</span>`}`;
}

const KEPT = {
  zookeeper: "In ZooKeeper, as Kafka keeps it up to 3.9. The controller writes it, and tells the brokers.",
  sqlite: "This broker is alone: it keeps Kafka's tree of znodes in SQLite, and is its own controller.",
  kraft: "In KRaft: records of the log __cluster_metadata, which the controllers replicate and every broker reads.",
};

/** What the metadata holds of the topic. */
function Metadata({ topic, number }) {
  const found = useData(path`/api/topics/${topic}/metadata`, { every: 2 });
  const here = (entry) => entry.path.endsWith(`/partitions/${number}/state`) || (entry.path === "PartitionRecord" && JSON.parse(entry.value).partitionId === number);
  return html`<${Panel} title="Where the cluster remembers it" flush>
    <${Loaded} of=${found}>${({ kind, entries }) => html`
      <p class="body">${KEPT[kind]} Made here from what the protocol tells; what it does not tell, as the epoch of the controller, is left out.</p>
      <div class="tree-nodes" tabindex="0" role="region" aria-label="Metadata"><table>
        <tbody>${entries.map((entry, i) => html`<tr key=${i} class=${here(entry) ? "chosen" : ""}><th scope="row"><code>${entry.path}</code></th><td><code class="wrap">${entry.value}</code></td></tr>`)}</tbody>
      </table></div>`}<//>
  <//>`;
}
