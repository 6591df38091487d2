// The overview: health, rates, and what needs attention.
import { html } from "../html.js";
import { outage, useLive } from "../api.js";
import { Chart } from "../chart.js";
import { byteRate, bytes, compact, count, duration, rate } from "../format.js";
import { Badge, Command, Empty, Figures, Loading, Page, Panel, Problem, bootstrap } from "../parts.js";
import { path } from "../router.js";
import { Table } from "../table.js";

const HEALTH = { ok: ["good", "Healthy"], warning: ["warn", "Needs attention"], bad: ["bad", "Something is broken"] };
const LEVEL = { bad: "bad", warning: "warn", warn: "warn", note: "" };

export default function Overview() {
  const { head: seen, error, loading } = useLive("/api/live/overview");
  if (error) return html`<${Problem} error=${error} />`;
  if (loading) return html`<${Loading} what="Reading the cluster…" />`;
  const [kind, words] = outage.value ? ["bad", "Out of reach"] : (HEALTH[seen.health] ?? ["", "Reading"]);
  const open = Object.values(seen.transactions ?? {}).reduce((sum, many) => sum + many, 0);
  return html`<${Page} title="Overview" badge=${html`<${Badge} kind=${kind}>${words}<//>`}>
    <${Figures} items=${[
      { label: "Brokers", value: seen.brokers ? `${count(seen.brokers.up)} of ${count(seen.brokers.expected)}` : "–", href: "/brokers", kind: seen.brokers && seen.brokers.up < seen.brokers.expected ? "bad" : "", note: seen.controller_id !== null && seen.controller_id !== undefined ? `controller ${seen.controller_id}` : "no controller" },
      { label: "Topics", value: count(seen.topics), href: "/topics", note: `${count(seen.partitions)} partitions` },
      { label: "Groups", value: count(seen.groups), href: "/groups" },
      { label: "Records", value: rate(seen.records_per_s), note: seen.bytes_in_per_s ? byteRate(seen.bytes_in_per_s) : "written per second" },
      { label: "Logs", value: bytes(seen.log_bytes), note: "of all replicas", href: "/brokers" },
      { label: "Transactions", value: count(seen.transactions?.Ongoing ?? 0), note: `ongoing, ${count(open)} ids`, href: "/transactions" },
    ]} />
    <div class="columns">
      <${Panel} title="Needs attention" flush>
        ${seen.attention?.length
          ? html`<ul class="attention">${seen.attention.map(
              (item, i) => html`<li key=${i}><${Badge} kind=${LEVEL[item.level] ?? ""}>${item.level}<//><a class="what" href=${item.href}>${item.text}</a></li>`,
            )}</ul>`
          : html`<${Empty} title="Nothing">${outage.value ? "Nothing was wrong when the cluster was last read." : "All partitions have a leader and all replicas are in sync."}<//>`}
      <//>
      <${Panel} title="Records written per second">
        <${Chart} label="Records written per second" height=${200} times=${(seen.rates ?? []).map(({ at_ms: at }) => at)}
          series=${[{ label: "Records", values: (seen.rates ?? []).map(({ records_per_s: value }) => value), format: (value) => rate(value) }]} />
      <//>
    </div>
    <div class="columns">
      <${Panel} title="Busiest topics" end=${html`<a class="small" href="/topics?sort=-rate">All by rate</a>`} flush>
        <${Table} label="Busiest topics" rows=${seen.top_topics ?? []} rowKey=${({ topic }) => topic} open=${({ topic }) => path`/topics/${topic}`}
          empty=${html`<${Empty} title="No topics yet"><div class="stack tight"><${Command} text=${`ottla topic create orders --partitions 3${bootstrap()}`} /></div><//>`}
          columns=${[
            { key: "topic", title: "Topic", cell: ({ topic }) => html`<a href=${path`/topics/${topic}`}>${topic}</a>` },
            { key: "records_per_s", title: "Records", number: true, width: 110, cell: (row) => rate(row.records_per_s) },
            { key: "log_bytes", title: "Size", number: true, width: 100, cell: (row) => bytes(row.log_bytes) },
          ]} />
      <//>
      <${Panel} title="Groups that lag most" end=${html`<a class="small" href="/groups?sort=-lag">All by lag</a>`} flush>
        <${Table} label="Groups that lag most" rows=${seen.top_groups ?? []} rowKey=${({ group }) => group} open=${({ group }) => path`/groups/${group}`}
          empty=${html`<${Empty} title="No group lags" />`}
          columns=${[
            { key: "group", title: "Group", cell: ({ group }) => html`<a href=${path`/groups/${group}`}>${group}</a>` },
            { key: "lag", title: "Lag", number: true, width: 100, cell: (row) => compact(row.lag) },
            { key: "lag_s", title: "In time", number: true, width: 110, cell: (row) => duration(row.lag_s) },
          ]} />
      <//>
    </div>
  <//>`;
}
