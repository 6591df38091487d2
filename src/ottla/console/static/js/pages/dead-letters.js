// Topics of dead letters.
import { html } from "../html.js";
import { useData } from "../api.js";
import { count } from "../format.js";
import { Empty, Loaded, Page, Panel } from "../parts.js";
import { path } from "../router.js";
import { Table, useSort } from "../table.js";

export default function DeadLetters() {
  const found = useData("/api/dead-letters", { every: 5 });
  const [sort, onSort] = useSort("-not_replayed");
  return html`<${Page} title="Dead letters">
    <${Loaded} of=${found}>${({ topics }) => html`<${Panel} flush label="Topics of dead letters">
      <${Table} label="Topics of dead letters" rows=${topics} inMemory sort=${sort} onSort=${onSort} rowKey=${({ topic }) => topic} open=${({ topic }) => path`/dead-letters/${topic}`}
        empty=${html`<${Empty} title="No dead letters">Topics that a pipeline names as dead_letter, or whose name ends in .dlq, appear here.<//>`}
        columns=${[
          { key: "topic", title: "Topic", sort: true, min: 180, cell: ({ topic }) => html`<a href=${path`/dead-letters/${topic}`}>${topic}</a>` },
          { key: "not_replayed", title: "Not replayed", number: true, sort: true, width: 140, cell: (row) => html`<span class=${row.not_replayed ? "warn strong" : ""}>${count(row.not_replayed)}</span>` },
          { key: "offsets", title: "All", number: true, sort: true, width: 110, cell: (row) => count(row.offsets) },
          { key: "partitions", title: "Partitions", number: true, sort: true, width: 104, wideOnly: true },
          { key: "pipelines", title: "Of pipelines", min: 140, cell: ({ pipelines }) => (pipelines?.length ? pipelines.map((name, i) => html`${i ? ", " : ""}<a href=${path`/pipelines/${name}`}>${name}</a>`) : html`<span class="muted">–</span>`) },
        ]} />
    <//>`}<//>
  <//>`;
}
