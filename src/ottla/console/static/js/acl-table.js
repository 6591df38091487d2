// ACLs: who may do what. Used by the page of all and by the tab of a topic.
import { html, useState } from "./html.js";
import { call, post } from "./api.js";
import { shell } from "./format.js";
import { Action, ActionDialog, Badge, Empty, Facts, Field, Panel, Select, bootstrap } from "./parts.js";
import { path, place } from "./router.js";
import { Table, useSort } from "./table.js";

// Kafka's names without separators, as the server has them, and as the command spells them.
const RESOURCES = { topic: "--topic", group: "--group", transactionalid: "--transactional-id", cluster: "--cluster", delegationtoken: "--delegation-token", user: "--user" };
const OPERATIONS = ["All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens"];
const SPELLED = Object.fromEntries(OPERATIONS.map((name) => [name.toLowerCase(), name]));

function command(verb, acl) {
  const resource = acl.type === "cluster" ? "--cluster" : `${RESOURCES[acl.type]} ${shell(acl.name || "NAME")}`;
  const words = [`ottla acl ${verb} --principal ${shell(acl.principal || "USER")} --operation ${SPELLED[acl.operation] ?? acl.operation} ${resource}`, acl.pattern === "prefixed" && "--prefixed", acl.host !== "*" && `--host ${shell(acl.host)}`, acl.permission === "deny" && "--deny"];
  return words.filter(Boolean).join(" ") + bootstrap();
}

export function AclTable({ enabled, acls, reload, about }) {
  const [sort, onSort] = useSort("principal");
  const [dialog, setDialog] = useState(null);
  const search = (place.value.query.get("search") ?? "").toLowerCase();
  const rows = search ? acls.filter((acl) => Object.values(acl).some((value) => String(value).toLowerCase().includes(search))) : acls;
  const close = (result) => (setDialog(null), result && reload());
  if (!enabled) return html`<${Panel} label="ACLs"><${Empty} title="The cluster has no authorizer">Everybody may do everything. Set authorizer.class.name to use ACLs.<//><//>`;
  return html`<${Panel} flush title="ACLs" end=${html`<${Action} needs="admin" onClick=${() => setDialog({ add: true })}>Add an ACL…<//>`}>
    <${Table} label="ACLs" rows=${rows} inMemory sort=${sort} onSort=${onSort} rowKey=${(acl) => Object.values(acl).join("\n")}
      empty=${html`<${Empty} title=${search ? "No ACL fits" : "No ACLs"}>${!search && "Only super users may use what has no ACL, unless allow.everyone.if.no.acl.found is set."}<//>`}
      columns=${[
        { key: "principal", title: "Principal", sort: true, min: 150 },
        { key: "permission", title: "", sort: true, width: 90, cell: (acl) => html`<${Badge} plain kind=${acl.permission === "deny" ? "bad" : "good"}>${acl.permission}<//>` },
        { key: "operation", title: "Operation", sort: true, width: 150, cell: (acl) => SPELLED[acl.operation] ?? acl.operation },
        { key: "type", title: "On", sort: true, width: 130 },
        { key: "name", title: "Name", sort: true, min: 150, cell: (acl) => (acl.type === "topic" && acl.pattern === "literal" && acl.name !== "*" ? html`<a href=${path`/topics/${acl.name}`}>${acl.name}</a>` : acl.name) },
        { key: "pattern", title: "Pattern", sort: true, width: 96, wideOnly: true },
        { key: "host", title: "Host", sort: true, width: 120, wideOnly: true },
        { key: "remove", title: html`<span class="sr">Remove</span>`, width: 86, cell: (acl) => html`<${Action} needs="admin" kind="quiet" onClick=${() => setDialog({ remove: acl })}>Remove<//>` },
      ]} />
    ${dialog?.add && html`<${Add} about=${about} onClose=${close} />`}
    ${dialog?.remove && html`<${ActionDialog} title="Remove an ACL" verb="Remove" danger command=${command("remove", dialog.remove)} done="The ACL was removed"
      run=${() => call("DELETE", "/api/acls", { body: { acls: [dialog.remove] } })} onClose=${close}>
      <${Facts} items=${Object.entries(dialog.remove)} />
    <//>`}
  <//>`;
}

function Add({ about, onClose }) {
  const [acl, setAcl] = useState({ type: "topic", name: "", pattern: "literal", principal: "User:", host: "*", operation: "read", permission: "allow", ...about });
  const set = (name) => (value) => setAcl({ ...acl, [name]: value, ...(name === "type" && value === "cluster" ? { name: "kafka-cluster", pattern: "literal" } : {}) });
  const input = (name) => html`<input value=${acl[name]} spellcheck=${false} onInput=${(event) => set(name)(event.currentTarget.value)} />`;
  const select = (name, options) => html`<${Select} label=${name} value=${acl[name]} options=${options} onChange=${set(name)} />`;
  return html`<${ActionDialog} title="Add an ACL" verb="Add" ready=${acl.name !== "" && acl.principal.length > 5} command=${command("add", acl)} done="The ACL was added" run=${() => post("/api/acls", { acls: [acl] })} onClose=${onClose}>
    <div class="fields">
      <${Field} label="Principal" hint="User:alice, or User:*">${input("principal")}<//>
      <${Field} label="Permission">${select("permission", ["allow", "deny"])}<//>
      <${Field} label="Operation">${select("operation", Object.entries(SPELLED))}<//>
      <${Field} label="On">${select("type", Object.keys(RESOURCES))}<//>
      ${acl.type !== "cluster" && html`<${Field} label="Name">${input("name")}<//>`}
      ${acl.type !== "cluster" && html`<${Field} label="The name is">${select("pattern", [["literal", "the whole name"], ["prefixed", "a prefix"]])}<//>`}
      <${Field} label="From host">${input("host")}<//>
    </div>
  <//>`;
}
