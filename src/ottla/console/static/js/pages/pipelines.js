// Pipelines that publish themselves to the cluster.
import { html } from "../html.js";
import { useData } from "../api.js";
import { compact, count, rate } from "../format.js";
import { Ago, Command, Empty, Loaded, Page, Panel, State, bootstrap } from "../parts.js";
import { path } from "../router.js";
import { Table, useSort } from "../table.js";

export default function Pipelines() {
  const found = useData("/api/pipelines", { every: 2 });
  const [sort, onSort] = useSort("pipeline");
  return html`<${Page} title="Pipelines">
    <${Loaded} of=${found}>${({ pipelines }) => html`<${Panel} flush label="Pipelines">
      <${Table} label="Pipelines" rows=${pipelines} inMemory sort=${sort} onSort=${onSort} rowKey=${({ pipeline }) => pipeline} open=${({ pipeline }) => path`/pipelines/${pipeline}`}
        empty=${html`<${Empty} title="No pipeline runs on this cluster yet">
          <p>A pipeline is a Python file on Spark: topics in, topics or tables out. It appears here while it runs.</p>
          <div class="narrow"><${Command} text=${`ottla pipeline init orders.py && ottla pipeline run orders.py${bootstrap()}`} /></div>
        <//>`}
        columns=${[
          { key: "pipeline", title: "Pipeline", sort: true, min: 120, cell: ({ pipeline }) => html`<a href=${path`/pipelines/${pipeline}`}>${pipeline}</a>` },
          { key: "state", title: "State", sort: true, width: 110, cell: (row) => html`<${State} state=${row.state} />` },
          { key: "flows", title: "Flows", number: true, sort: true, width: 90, cell: (row) => html`${count(row.flows)}${row.failed ? html` <span class="bad">${row.failed} failed</span>` : ""}` },
          { key: "rows_per_s", title: "Rows", number: true, sort: true, width: 90, cell: (row) => rate(row.rows_per_s) },
          { key: "lag", title: "Lag", number: true, sort: true, width: 90, cell: (row) => compact(row.lag) },
          { key: "dead_letters", title: "Dead letters", number: true, sort: true, width: 110, wideOnly: true, cell: (row) => html`<span class=${row.dead_letters ? "warn strong" : ""}>${count(row.dead_letters)}</span>` },
          { key: "heard_ms", title: "Last heard", number: true, sort: true, width: 110, wideOnly: true, cell: (row) => html`<${Ago} ms=${row.heard_ms} />` },
          { key: "host", title: "On", width: 110, wideOnly: true },
          { key: "last_error", title: "Last error", min: 200, wideOnly: true, cell: (row) => html`<span class="bad">${(typeof row.last_error === "string" ? row.last_error : row.last_error?.message) ?? ""}</span>` },
        ]} />
    <//>`}<//>
  <//>`;
}
