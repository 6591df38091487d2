// One broker: its log directories, what fills them, its settings.
import { html } from "../html.js";
import { useData } from "../api.js";
import { Configs } from "../configs.js";
import { bytes, count } from "../format.js";
import { Badge, Facts, Figures, Loaded, Page, Panel, Problem, Progress, Tabs, currentTab } from "../parts.js";
import { path } from "../router.js";
import { Table, useSort } from "../table.js";

const TABS = [{ id: "disks", title: "Log directories" }, { id: "configs", title: "Settings" }];

export default function Broker({ broker }) {
  const everyBroker = broker === "default";
  const found = useData(path`/api/brokers/${broker}`, { every: 10 });
  const tab = everyBroker ? "configs" : currentTab(TABS);
  const row = found.data;
  return html`<${Page} title=${everyBroker ? "Defaults of all brokers" : `Broker ${broker}`} badge=${row?.is_controller && html`<${Badge} kind="info" plain>controller<//>`}
    tabs=${!everyBroker && html`<${Tabs} items=${TABS} />`}>
    <${Loaded} of=${found}>${(found_) => html`
      ${!everyBroker && html`<${Figures} items=${[
        { label: "Address", value: html`<span class="mono small">${found_.host}:${found_.port}</span>`, note: found_.rack ? `rack ${found_.rack}` : "" },
        { label: "Leaders", value: count(found_.leaders) },
        { label: "Replicas", value: count(found_.replicas), note: `${count(found_.in_sync)} in sync` },
        { label: "Size", value: bytes(found_.log_bytes) },
      ]} />`}
      ${tab === "disks" && (found_.log_dirs ?? []).map((dir) => html`<${LogDir} key=${dir.path} dir=${dir} />`)}
      ${tab === "configs" && html`<${Configs} configs=${found_.configs ?? []} at=${path`/api/brokers/${broker}/configs`} kind="broker" name=${broker} reload=${found.reload} />`}
    `}<//>
  <//>`;
}

function LogDir({ dir }) {
  const [sort, onSort] = useSort("-log_bytes");
  const used = dir.total_bytes ? dir.total_bytes - dir.usable_bytes : null;
  return html`<${Panel} title=${html`<span class="mono wrap">${dir.path}</span>`} label=${dir.path} flush>
    <div class="body stack tight">
      ${dir.error && html`<${Problem} error=${{ message: dir.error }} />`}
      <${Facts} items=${[
        ["Logs", `${bytes(dir.log_bytes)} in ${count(dir.replicas)} replicas`],
        dir.total_bytes && ["Disk", html`${bytes(dir.usable_bytes)} free of ${bytes(dir.total_bytes)} <${Progress} label="Disk used" done=${used} all=${dir.total_bytes} kind=${used / dir.total_bytes > 0.9 ? "bad" : used / dir.total_bytes > 0.75 ? "warn" : ""} />`],
      ]} />
    </div>
    <${Table} label=${`Topics in ${dir.path}`} rows=${dir.topics ?? []} inMemory sort=${sort} onSort=${onSort} height="420px" rowKey=${({ topic }) => topic} open=${({ topic }) => path`/topics/${topic}`}
      columns=${[
        { key: "topic", title: "Topic", sort: true, cell: ({ topic }) => html`<a href=${path`/topics/${topic}`}>${topic}</a>` },
        { key: "partitions", title: "Replicas", number: true, sort: true, width: 100 },
        { key: "log_bytes", title: "Size", number: true, sort: true, width: 120, cell: (row) => bytes(row.log_bytes) },
      ]} />
  <//>`;
}
