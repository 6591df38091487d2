// The brokers: leaders, replicas, sizes and how evenly they are spread.
import { html } from "../html.js";
import { useData } from "../api.js";
import { bytes, count } from "../format.js";
import { Badge, Loaded, Page, Panel } from "../parts.js";
import { path } from "../router.js";
import { Table, useSort } from "../table.js";

const skew = (value) => (value === null || value === undefined ? "–" : html`<span class=${Math.abs(value) > 0.2 ? "warn" : ""}>${value > 0 ? "+" : ""}${Math.round(value * 100)} %</span>`);

export default function Brokers() {
  const found = useData("/api/brokers", { every: 5 });
  const [sort, onSort] = useSort("broker");
  return html`<${Page} title="Brokers" actions=${html`<a class="button" href="/brokers/default">Defaults of all brokers</a>`}>
    <${Loaded} of=${found}>${({ brokers }) => html`<${Panel} flush label="Brokers">
      <${Table} label="Brokers" rows=${brokers} inMemory sort=${sort} onSort=${onSort} rowKey=${({ broker }) => broker} open=${({ broker }) => path`/brokers/${broker}`}
        columns=${[
          { key: "broker", title: "Broker", sort: true, width: 150, cell: (row) => html`<a href=${path`/brokers/${row.broker}`}>${row.broker}</a> ${row.is_controller && html`<${Badge} kind="info" plain>controller<//>`}` },
          { key: "host", title: "Address", sort: true, min: 180, cell: (row) => (row.up === false ? html`<${Badge} kind="bad">down<//>` : html`<span class="mono">${row.host}:${row.port}</span>`) },
          { key: "rack", title: "Rack", sort: true, width: 90, wideOnly: true },
          { key: "leaders", title: "Leaders", number: true, sort: true, width: 100, cell: (row) => count(row.leaders) },
          { key: "leader_skew", title: "Leader skew", number: true, sort: true, width: 120, wideOnly: true, cell: (row) => skew(row.leader_skew) },
          { key: "replicas", title: "Replicas", number: true, sort: true, width: 100, cell: (row) => count(row.replicas) },
          { key: "replica_skew", title: "Replica skew", number: true, sort: true, width: 120, wideOnly: true, cell: (row) => skew(row.replica_skew) },
          { key: "in_sync", title: "In sync", number: true, sort: true, width: 100, cell: (row) => html`<span class=${row.in_sync < row.replicas ? "bad" : ""}>${count(row.in_sync)}</span>` },
          { key: "log_bytes", title: "Size", number: true, sort: true, width: 110, cell: (row) => bytes(row.log_bytes) },
        ]} />
    <//>`}<//>
  <//>`;
}
