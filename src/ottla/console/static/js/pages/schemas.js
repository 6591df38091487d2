// Schemas of the registry: subjects, versions, what changed between them, and whether a new one would fit.
import { html, useState } from "../html.js";
import { post, useData } from "../api.js";
import { Action, ActionDialog, Badge, Command, Empty, Field, Loaded, Page, Panel, STAY, SearchField, Select, bootstrap } from "../parts.js";
import { Diff } from "../record/diff.js";
import { path, place, setQuery } from "../router.js";
import { Table, useSort } from "../table.js";

export default function Schemas({ subject }) {
  return subject === undefined ? html`<${Subjects} />` : html`<${Subject} subject=${subject} />`;
}

function Subjects() {
  const found = useData("/api/schemas", { every: 30 });
  const [sort, onSort] = useSort("subject");
  const search = (place.value.query.get("search") ?? "").toLowerCase();
  if (found.error?.code === "NO_REGISTRY") {
    return html`<${Page} title="Schemas"><${Panel} label="Schemas"><${Empty} title="No schema registry">
      <p>Start the console with the address of one:</p><div class="narrow"><${Command} text=${`ottla console${bootstrap()} --registry http://127.0.0.1:8081`} /></div>
    <//><//><//>`;
  }
  return html`<${Page} title="Schemas">
    <${Loaded} of=${found}>${({ subjects }) => html`<${Panel} flush label="Subjects">
      <div class="body toolbar"><${SearchField} label="Search subjects" class="grow" /></div>
      <${Table} label="Subjects" rows=${subjects.filter((row) => row.subject.toLowerCase().includes(search))} inMemory sort=${sort} onSort=${onSort} rowKey=${(row) => row.subject} open=${(row) => path`/schemas/${row.subject}`}
        empty=${html`<${Empty} title="No subjects" />`}
        columns=${[
          { key: "subject", title: "Subject", sort: true, min: 220, cell: (row) => html`<a href=${path`/schemas/${row.subject}`}>${row.subject}</a>` },
          { key: "versions", title: "Versions", number: true, width: 110, cell: (row) => row.versions.length },
          { key: "latest", title: "Latest", number: true, width: 100, cell: (row) => row.versions.at(-1) },
        ]} />
    <//>`}<//>
  <//>`;
}

function layOut(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const datum = (schema) => ({ format: "text", text: layOut(schema) });

function Subject({ subject }) {
  const found = useData(path`/api/schemas/${subject}`);
  const [adding, setAdding] = useState(false);
  return html`<${Page} title=${subject} badge=${found.data && html`<${Badge} plain>${found.data.compatibility}<//>`} actions=${html`<${Action} needs="admin" onClick=${() => setAdding(true)}>New version…<//>`}>
    <${Loaded} of=${found}>${({ versions }) => {
      const list = [...versions].sort((a, b) => b.version - a.version);
      const chosen = list.find(({ version }) => String(version) === place.value.query.get("version")) ?? list[0];
      const before = list.find(({ version }) => version < chosen.version);
      return html`<div class="toolbar">
          <${Select} label="Version" value=${String(chosen.version)} options=${list.map(({ version }) => [String(version), `Version ${version}`])} onChange=${(version) => setQuery({ version })} />
          <span class="muted">${chosen.type}, schema id ${chosen.id}</span>
        </div>
        <${Panel} title=${`Version ${chosen.version}`}><pre class="text-view" tabindex="0" aria-label="Schema">${layOut(chosen.schema)}</pre><//>
        ${before && html`<${Panel} title=${`Changed since version ${before.version}`}><${Diff} before=${datum(before.schema)} after=${datum(chosen.schema)} /><//>`}
        ${adding && html`<${Add} subject=${subject} like=${list[0]} onClose=${(result) => (setAdding(false), result && found.reload())} />`}`;
    }}<//>
  <//>`;
}

function Add({ subject, like, onClose }) {
  const [schema, setSchema] = useState(layOut(like.schema));
  const [check, setCheck] = useState(null);
  const at = path`/api/schemas/${subject}`;
  return html`<${ActionDialog} title=${`New version of ${subject}`} verb=${check?.compatible ? "Register" : "Check"} wide onClose=${onClose} done=${`A new version of ${subject} was registered`}
    run=${async () => {
      if (check?.compatible) return post(at, { schema, type: like.type, dry_run: false });
      setCheck(await post(at, { schema, type: like.type, dry_run: true }));
      return STAY;
    }}>
    <${Field} label=${`Schema (${like.type})`}><textarea rows="18" spellcheck=${false} value=${schema} onInput=${(event) => (setSchema(event.currentTarget.value), setCheck(null))}></textarea><//>
    ${check && html`<div class=${check.compatible ? "good" : "error-box"} role="status">${check.compatible ? "It fits the compatibility of the subject." : "It does not fit:"}<ul>${(check.messages ?? []).map((message, i) => html`<li key=${i}>${message}</li>`)}</ul></div>`}
  <//>`;
}
