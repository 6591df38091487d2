// All consumer groups, found and sorted by the server.
import { html } from "../html.js";
import { compact, count, duration } from "../format.js";
import { Badge, Empty, Page, Panel, QuerySelect, SearchField, State } from "../parts.js";
import { path, place, setQuery } from "../router.js";
import { Table, listFoot, useServerRows, useSort } from "../table.js";

const groupOf = ({ group }) => group;

const COLUMNS = [
  { key: "group", title: "Group", sort: "name", min: 200, cell: (row) => html`<a href=${path`/groups/${row.group}`}>${row.group}</a>${row.stuck && html` <${Badge} kind="bad" plain>stuck<//>`}` },
  { key: "state", title: "State", sort: true, width: 150, cell: (row) => html`<${State} state=${row.state} />` },
  { key: "type", title: "Protocol", width: 88, wideOnly: true },
  { key: "members", title: "Members", number: true, sort: true, width: 92, cell: (row) => count(row.members) },
  { key: "topics", title: "Topics", sort: true, min: 120, wideOnly: true, cell: (row) => (row.topics ?? []).join(", ") || html`<span class="muted">–</span>` },
  { key: "lag", title: "Lag", number: true, sort: true, width: 80, cell: (row) => html`<span title=${count(row.lag)}>${compact(row.lag)}</span>` },
  { key: "lag_s", title: "In time", number: true, sort: true, width: 86, cell: (row) => duration(row.lag_s) },
  { key: "lead", title: "Lead", number: true, sort: true, width: 76, wideOnly: true, cell: (row) => compact(row.lead) },
  { key: "coordinator", title: "Coordinator", number: true, width: 112, wideOnly: true },
];

const STATES = ["Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead"];

export default function Groups() {
  const { query } = place.value;
  const [sort, onSort] = useSort("name");
  const asked = { search: query.get("search"), state: query.get("state"), type: query.get("type"), topic: query.get("topic"), sort };
  const rows = useServerRows("/api/groups", "/api/live/groups", asked, groupOf);
  const filtered = asked.search || asked.state || asked.type || asked.topic;
  return html`<${Page} title="Groups">
    <${Panel} flush label="Groups">
      <div class="body toolbar">
        <${SearchField} label="Search groups" placeholder="Part of a name, * and ?" class="grow" />
        <${SearchField} name="topic" label="Topic they read" />
        <${QuerySelect} name="state" label="State" options=${[["", "All states"], ...STATES]} />
        <${QuerySelect} name="type" label="Protocol" options=${[["", "All protocols"], "classic", "consumer"]} />
      </div>
      <${Table} label="Groups" columns=${COLUMNS} rows=${rows} rowKey=${groupOf} open=${({ group }) => path`/groups/${group}`} sort=${sort} onSort=${onSort} loading=${rows.loading} error=${rows.error}
        empty=${filtered ? html`<${Empty} title="No group fits"><button class="link-button" onClick=${() => setQuery({ search: null, state: null, type: null, topic: null })}>Show all groups</button><//>` : html`<${Empty} title="No groups yet">A group appears when a consumer with a group.id reads.<//>`}
        foot=${listFoot(rows.head, "groups")} />
    <//>
  <//>`;
}
