// Transactions: ids and their states, what hangs, and the partitions of one.
import { html, useState } from "../html.js";
import { post, useData, useLive } from "../api.js";
import { count, duration, shell } from "../format.js";
import { Action, ActionDialog, Ago, Empty, Facts, Loaded, Page, Panel, Problem, QuerySelect, SearchField, State, Time, bootstrap } from "../parts.js";
import { address, path, place, setQuery } from "../router.js";
import { Table, useSort } from "../table.js";

const STATES = ["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", "Dead", "PrepareEpochFence"];

export default function Transactions() {
  const { query } = place.value;
  const [search, state, chosen] = ["search", "state", "id"].map((name) => query.get(name) ?? "");
  const live = useLive("/api/live/transactions");
  const found = useData("/api/transactions", { every: 10 });
  const [sort, onSort] = useSort("id");
  const [aborting, setAborting] = useState(null);
  const all = live.loading ? (found.data?.rows ?? []) : live.list;
  const rows = all.filter((row) => (!search || row.id.toLowerCase().includes(search.toLowerCase())) && (!state || row.state === state));
  const hanging = found.data?.hanging ?? [];
  return html`<${Page} title="Transactions">
    ${hanging.length > 0 && html`<${Panel} title="Hanging transactions" flush>
      <div class="body"><p class="muted">They are open in the log of a partition, but their coordinator does not know them. read_committed consumers wait there for ever.</p></div>
      <${Table} label="Hanging transactions" rows=${hanging} rowKey=${(row) => `${row.topic}-${row.partition}/${row.start_offset}`} columns=${[
        { key: "topic", title: "Topic", min: 140, cell: (row) => html`<a href=${path`/topics/${row.topic}`}>${row.topic}</a>` },
        { key: "partition", title: "Partition", number: true, width: 92 },
        { key: "start_offset", title: "Since offset", number: true, width: 120, cell: (row) => count(row.start_offset) },
        { key: "producer_id", title: "Producer id", number: true, width: 120 },
        { key: "last_timestamp_ms", title: "Last wrote", number: true, width: 150, cell: (row) => html`<${Ago} ms=${row.last_timestamp_ms} />` },
        { key: "act", title: html`<span class="sr">Actions</span>`, width: 100, cell: (row) => html`<${Action} needs="admin" kind="danger" onClick=${() => setAborting(row)}>Abort…<//>` },
      ]} />
    <//>`}
    <${Panel} flush label="Transactional ids">
      <div class="body toolbar">
        <${SearchField} label="Search transactional ids" class="grow" />
        <${QuerySelect} name="state" label="State" options=${[["", "All states"], ...STATES]} />
      </div>
      ${live.error && html`<${Problem} error=${live.error} />`}
      <${Table} label="Transactional ids" rows=${rows} inMemory sort=${sort} onSort=${onSort} loading=${live.loading && found.loading} rowKey=${({ id }) => id} selected=${chosen}
        open=${({ id }) => void setQuery({ id: id === chosen ? null : id }, { replace: false })}
        empty=${html`<${Empty} title=${search || state ? "No transactional id fits" : "No transactional ids"} />`}
        columns=${[
          { key: "id", title: "Transactional id", sort: true, min: 200 },
          { key: "state", title: "State", sort: true, width: 160, cell: (row) => html`<${State} state=${row.state} />` },
          { key: "open_s", title: "Open for", number: true, sort: true, width: 120, cell: (row) => html`<span class=${row.timeout_s && row.open_s > row.timeout_s ? "bad strong" : ""}>${duration(row.open_s)}</span>` },
          { key: "timeout_s", title: "Timeout", number: true, sort: true, width: 110, wideOnly: true, cell: (row) => duration(row.timeout_s) },
          { key: "producer_id", title: "Producer id", number: true, sort: true, width: 120, wideOnly: true },
          { key: "coordinator", title: "Coordinator", number: true, sort: true, width: 110, wideOnly: true },
        ]} />
    <//>
    ${chosen && html`<${One} id=${chosen} />`}
    ${aborting && html`<${ActionDialog} title="Abort a hanging transaction" verb="Abort it" danger done="The transaction was aborted"
      command=${`ottla txn abort ${shell(`${aborting.topic}:${aborting.partition}`)} --start-offset ${aborting.start_offset}${bootstrap()}`}
      run=${() => post("/api/transactions/abort", { topic: aborting.topic, partition: aborting.partition, start_offset: aborting.start_offset })} onClose=${(result) => (setAborting(null), result && found.reload())}>
      <${Facts} items=${[["Partition", `${aborting.topic}-${aborting.partition}`], ["Since offset", count(aborting.start_offset)], ["Producer id", aborting.producer_id], ["Last wrote", html`<${Time} ms=${aborting.last_timestamp_ms} />`]]} />
      <p>A marker is written to the partition; what the producer wrote there counts as aborted.</p>
    <//>`}
  <//>`;
}

function One({ id }) {
  const found = useData(path`/api/transactions/${id}`, { every: 3 });
  return html`<${Panel} title=${id} end=${html`<button class="button quiet icon" aria-label="Close" onClick=${() => setQuery({ id: null })}>×</button>`}>
    <${Loaded} of=${found}>${(data) => html`<${Facts} items=${[
      ["State", html`<${State} state=${data.state} />`],
      ["Started", html`<${Time} ms=${data.start_ms} />`],
      ["Timeout", duration(data.timeout_ms / 1000)],
      ["Producer", `${data.producer_id}, epoch ${data.producer_epoch}`],
      ["Coordinator", html`broker <a href=${path`/brokers/${data.coordinator}`}>${data.coordinator}</a>`],
      ["Partitions", data.partitions?.length ? data.partitions.map(({ topic, partition }, i) => html`${i ? ", " : ""}<a href=${address(path`/topics/${topic}/records`, { partitions: partition, isolation: "read_uncommitted" })}>${topic}-${partition}</a>`) : "none"],
    ]} />`}<//>
  <//>`;
}
