// All ACLs of the cluster.
import { html } from "../html.js";
import { useData } from "../api.js";
import { AclTable } from "../acl-table.js";
import { Loaded, Page, SearchField } from "../parts.js";

export default function Acls() {
  const found = useData("/api/acls");
  return html`<${Page} title="ACLs">
    <${Loaded} of=${found}>${(data) => html`${data.enabled && html`<div class="toolbar"><${SearchField} label="Search ACLs" placeholder="Principal, name, operation" class="grow" /></div>`}<${AclTable} ...${data} reload=${found.reload} />`}<//>
  <//>`;
}
