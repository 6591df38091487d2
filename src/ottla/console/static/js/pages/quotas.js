// Quotas of users, client ids and addresses.
import { html, useState } from "../html.js";
import { post, useData } from "../api.js";
import { byteRate, rate, shell } from "../format.js";
import { Action, ActionDialog, Badge, Empty, Field, Loaded, Page, Panel, Select, bootstrap } from "../parts.js";
import { Table } from "../table.js";

const LIMITS = { producer_byte_rate: byteRate, consumer_byte_rate: byteRate, request_percentage: (value) => `${value} %`, controller_mutation_rate: (value) => rate(value), connection_creation_rate: (value) => rate(value) };
const KIND = { user: "User", client_id: "Client", ip: "Address" };
const OPTION = { user: ["--user", "--user-defaults"], client_id: ["--client", "--client-defaults"], ip: ["--ip", "--ip-defaults"] };

const key = (entity) => JSON.stringify(Object.entries(entity).sort());
const options = (entity) => Object.entries(entity).map(([kind, name]) => (name === null ? OPTION[kind][1] : `${OPTION[kind][0]} ${shell(name || "NAME")}`)).join(" ");

export default function Quotas() {
  const found = useData("/api/quotas");
  const [dialog, setDialog] = useState(null);
  const close = (result) => (setDialog(null), result && found.reload());
  return html`<${Page} title="Quotas" actions=${html`<${Action} needs="admin" kind="main-action" onClick=${() => setDialog({ entity: { user: "" }, limits: {}, fresh: true })}>Set quotas…<//>`}>
    <${Loaded} of=${found}>${({ quotas }) => html`<${Panel} flush label="Quotas">
      <${Table} label="Quotas" rows=${quotas} rowKey=${({ entity }) => key(entity)}
        empty=${html`<${Empty} title="No quotas">Clients may use as much as there is.<//>`}
        columns=${[
          { key: "entity", title: "Of", min: 220, cell: ({ entity }) => Object.entries(entity).map(([kind, name]) => html`<span key=${kind}><${Badge} plain>${KIND[kind] ?? kind}<//> ${name === null ? html`<span class="muted">all without their own</span>` : name} </span>`) },
          { key: "limits", title: "At most", min: 260, tall: true, cell: ({ limits }) => Object.entries(limits).map(([name, value]) => html`<div key=${name}><span class="muted">${name}</span> ${(LIMITS[name] ?? String)(value)}</div>`) },
          { key: "act", title: html`<span class="sr">Actions</span>`, width: 96, cell: (row) => html`<${Action} needs="admin" kind="quiet" onClick=${() => setDialog(row)}>Change<//>` },
        ]} />
    <//>`}<//>
    ${dialog && html`<${Edit} quota=${dialog} onClose=${close} />`}
  <//>`;
}

function Edit({ quota, onClose }) {
  const [entity, setEntity] = useState(quota.entity);
  const [limits, setLimits] = useState(() => Object.fromEntries(Object.entries(quota.limits).map(([name, value]) => [name, String(value)])));
  const [kind] = Object.keys(entity);
  const names = "ip" in entity ? ["connection_creation_rate"] : Object.keys(LIMITS).filter((name) => name !== "connection_creation_rate");
  const set = Object.fromEntries(names.filter((name) => limits[name]?.trim()).map((name) => [name, Number(limits[name])]));
  const unset = Object.keys(quota.limits).filter((name) => !(name in set));
  const commands = [
    Object.keys(set).length && `ottla quota set ${options(entity)} ${Object.entries(set).map(([name, value]) => `${name}=${value}`).join(" ")}${bootstrap()}`,
    unset.length && `ottla quota remove ${options(entity)} ${unset.join(" ")}${bootstrap()}`,
  ].filter(Boolean);
  const named = Object.values(entity).every((name) => name !== "");
  return html`<${ActionDialog} title=${quota.fresh ? "Set quotas" : "Change quotas"} verb="Save" ready=${named && commands.length > 0 && Object.values(set).every(Number.isFinite)} command=${commands.join("\n")} done="The quotas were changed"
    run=${() => post("/api/quotas", { entity, set, unset })} onClose=${onClose}>
    ${quota.fresh && html`<div class="fields">
      <${Field} label="Of"><${Select} label="Of" value=${kind} options=${Object.entries(KIND)} onChange=${(value) => setEntity({ [value]: "" })} /><//>
      <${Field} label="Name" hint="Empty field with the mark: all without quotas of their own"><input value=${entity[kind] ?? ""} disabled=${entity[kind] === null} onInput=${(event) => setEntity({ [kind]: event.currentTarget.value })} /><//>
      <label class="check"><input type="checkbox" checked=${entity[kind] === null} onChange=${(event) => setEntity({ [kind]: event.currentTarget.checked ? null : "" })} />The default</label>
    </div>`}
    <div class="fields">
      ${names.map((name) => html`<${Field} key=${name} label=${name} hint="Empty: no limit here"><input inputmode="decimal" value=${limits[name] ?? ""} onInput=${(event) => setLimits({ ...limits, [name]: event.currentTarget.value })} /><//>`)}
    </div>
  <//>`;
}
