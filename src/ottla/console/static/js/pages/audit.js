// What was changed with this console, by whom.
import { html } from "../html.js";
import { session, useData } from "../api.js";
import { Badge, Empty, Loaded, Page, Panel, Time } from "../parts.js";
import { Table } from "../table.js";

export default function Audit() {
  const found = useData("/api/audit?limit=500", { every: 5 });
  const topic = session.value.audit_topic;
  return html`<${Page} title="Audit">
    <p class="muted">The changes that were made with this console since it started${topic ? html`; all of them are in the topic <code>${topic}</code>` : ""}.</p>
    <${Loaded} of=${found}>${({ entries }) => html`<${Panel} flush label="Changes">
      <${Table} label="Changes" rows=${entries} rowKey=${(entry) => `${entry.at_ms}/${entry.action}/${entry.subject}`} empty=${html`<${Empty} title="Nothing was changed yet" />`}
        columns=${[
          { key: "at_ms", title: "Time", width: 190, cell: (entry) => html`<${Time} ms=${entry.at_ms} />` },
          { key: "user", title: "User", width: 130, cell: (entry) => entry.user ?? html`<span class="muted">–</span>` },
          { key: "action", title: "Action", width: 170 },
          { key: "subject", title: "What", min: 140 },
          { key: "result", title: "Result", width: 90, cell: (entry) => html`<${Badge} kind=${entry.result === "ok" ? "good" : "bad"}>${entry.result}<//>` },
          { key: "detail", title: "Detail", min: 220, mono: true, wideOnly: true, cell: (entry) => entry.error ?? JSON.stringify(entry.detail ?? {}) },
        ]} />
    <//>`}<//>
  <//>`;
}
