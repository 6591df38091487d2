// Users that log in with SCRAM.
import { html, useState } from "../html.js";
import { del, post, useData } from "../api.js";
import { shell } from "../format.js";
import { Action, ActionDialog, Badge, Empty, Field, Loaded, Page, Panel, Select, bootstrap } from "../parts.js";
import { path } from "../router.js";
import { Table, useSort } from "../table.js";

export default function Users() {
  const found = useData("/api/users");
  const [sort, onSort] = useSort("user");
  const [dialog, setDialog] = useState(null);
  const close = (result) => (setDialog(null), result && found.reload());
  return html`<${Page} title="Users" actions=${html`<${Action} needs="admin" kind="main-action" onClick=${() => setDialog({ add: "" })}>Add a user…<//>`}>
    <${Loaded} of=${found}>${({ users }) => html`<${Panel} flush label="Users">
      <${Table} label="Users" rows=${users} inMemory sort=${sort} onSort=${onSort} rowKey=${({ user }) => user}
        empty=${html`<${Empty} title="No users">Users log in with SCRAM, by name and password.<//>`}
        columns=${[
          { key: "user", title: "User", sort: true, min: 140 },
          { key: "mechanisms", title: "Mechanisms", min: 220, cell: ({ mechanisms }) => mechanisms.map(({ mechanism, iterations }) => html`<span key=${mechanism}><${Badge} plain>${mechanism}, ${iterations} iterations<//> </span>`) },
          { key: "act", title: html`<span class="sr">Actions</span>`, width: 230, cell: ({ user }) => html`<${Action} needs="admin" kind="quiet" onClick=${() => setDialog({ add: user })}>New password<//><${Action} needs="admin" kind="quiet" onClick=${() => setDialog({ remove: user })}>Remove<//>` },
        ]} />
    <//>`}<//>
    ${dialog?.add !== undefined && html`<${Add} known=${dialog.add} onClose=${close} />`}
    ${dialog?.remove && html`<${ActionDialog} title=${`Remove ${dialog.remove}`} verb="Remove" danger done=${`${dialog.remove} was removed`} command=${`ottla user remove ${shell(dialog.remove)}${bootstrap()}`}
      run=${() => del(path`/api/users/${dialog.remove}`, { mechanism: null })} onClose=${close}><p>${dialog.remove} cannot log in any more. Connections that are open stay.</p><//>`}
  <//>`;
}

function Add({ known, onClose }) {
  const [user, setUser] = useState(known);
  const [password, setPassword] = useState("");
  const [mechanism, setMechanism] = useState("SCRAM-SHA-512");
  return html`<${ActionDialog} title=${known ? `New password of ${known}` : "Add a user"} verb=${known ? "Set" : "Add"} ready=${user !== "" && password !== ""} done=${known ? `${user} has a new password` : `${user} was added`}
    command=${`ottla user add ${shell(user || "USER")} --mechanism ${mechanism} --password-file -${bootstrap()}`}
    run=${() => post("/api/users", { user, password, mechanism, iterations: 8192 })} onClose=${onClose}>
    ${!known && html`<${Field} label="Name"><input value=${user} autofocus autocomplete="off" onInput=${(event) => setUser(event.currentTarget.value)} /><//>`}
    <${Field} label="Password"><input type="password" value=${password} autocomplete="new-password" onInput=${(event) => setPassword(event.currentTarget.value)} /><//>
    <${Field} label="Mechanism"><${Select} label="Mechanism" value=${mechanism} options=${["SCRAM-SHA-256", "SCRAM-SHA-512"]} onChange=${setMechanism} /><//>
  <//>`;
}
