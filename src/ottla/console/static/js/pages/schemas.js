// Schemas of the registry: subjects, versions, what changed between them, and whether a new one would fit.
import { html, useState } from "../html.js";
import { del, post, put, useData } from "../api.js";
import { plural, shell } from "../format.js";
import { Action, ActionDialog, Badge, Check, Command, Empty, Field, Loaded, Page, Panel, STAY, SearchField, Select, bootstrap } from "../parts.js";
import { Diff } from "../record/diff.js";
import { address, go, path, place, setQuery } from "../router.js";
import { Table, useSort } from "../table.js";

const SUBJECTS_MAX = 1000;
const TYPES = [["AVRO", "Avro"], ["JSON", "JSON Schema"], ["PROTOBUF", "Protobuf"]];
const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];

export default function Schemas({ subject }) {
  return subject === undefined ? html`<${Subjects} />` : html`<${Subject} key=${subject} subject=${subject} />`;
}

const deletedToo = () => place.value.query.get("deleted");

const DeletedToo = () => html`<${Check} label="Deleted too" checked=${deletedToo() === "1"} onChange=${(on) => setQuery({ deleted: on ? "1" : null, version: null, with: null })} />`;

function Subjects() {
  const found = useData(address("/api/schemas", { search: place.value.query.get("search"), deleted: deletedToo(), limit: SUBJECTS_MAX }), { every: 30 });
  const [sort, onSort] = useSort("subject");
  const [adding, setAdding] = useState(false);
  if (found.error?.code === "NO_REGISTRY") {
    return html`<${Page} title="Schemas"><${Panel} label="Schemas"><${Empty} title="No schema registry">
      <p>Start the console with the address of one:</p><div class="narrow"><${Command} text=${`ottla console${bootstrap()} --registry http://127.0.0.1:8081`} /></div>
    <//><//><//>`;
  }
  return html`<${Page} title="Schemas" actions=${html`<${Action} kind="main-action" onClick=${() => setAdding(true)}>New subject…<//>`}>
    <${Loaded} of=${found}>${({ subjects, matched }) => html`<${Panel} flush label="Subjects">
      <div class="body toolbar"><${SearchField} label="Search subjects" class="grow" /><${DeletedToo} /></div>
      <${Table} label="Subjects" rows=${subjects} inMemory sort=${sort} onSort=${onSort} rowKey=${(row) => row.subject} open=${(row) => address(path`/schemas/${row.subject}`, { deleted: deletedToo() })}
        empty=${html`<${Empty} title="No subjects" />`}
        columns=${[
          { key: "subject", title: "Subject", sort: true, min: 220, cell: (row) => html`<a href=${address(path`/schemas/${row.subject}`, { deleted: deletedToo() })}>${row.subject}</a>${row.deleted && html` <${Badge} kind="warn">deleted<//>`}` },
          { key: "versions", title: "Versions", number: true, width: 110, cell: (row) => row.versions.length },
          { key: "latest", title: "Latest", number: true, width: 100, cell: (row) => row.versions.at(-1) },
        ]} />
      ${matched > SUBJECTS_MAX && html`<p class="body muted small">The first ${SUBJECTS_MAX} of ${plural(matched, "subject")}: search for the others.</p>`}
    <//>`}<//>
    ${adding && html`<${Add} onClose=${(result) => (setAdding(false), result?.subject && go(path`/schemas/${result.subject}`))} />`}
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
  const found = useData(address(path`/api/schemas/${subject}`, { deleted: deletedToo() }));
  const [dialog, setDialog] = useState(null);
  const close = (result) => {
    setDialog(null);
    if (!result) return;
    if (dialog.remove === "subject") go("/schemas");
    else found.reload();
  };
  return html`<${Page} title=${subject} badge=${found.data && html`<span title=${`Of the ${found.data.compatibility_of}`}><${Badge} plain>${found.data.compatibility}<//></span>`}
    actions=${html`<${Action} kind="main-action" disabled=${!found.data} onClick=${() => setDialog({ add: true })}>New version…<//>
      <${Action} needs="admin" disabled=${!found.data} onClick=${() => setDialog({ level: true })}>Compatibility…<//>
      <${Action} needs="admin" disabled=${!found.data} onClick=${() => setDialog({ remove: "subject" })}>Delete…<//>`}>
    <${Loaded} of=${found}>${({ versions, versions_total: total, compatibility, compatibility_of: of }) => {
      const list = [...versions].sort((a, b) => b.version - a.version);
      const wanted = (name) => list.find(({ version }) => String(version) === place.value.query.get(name));
      const chosen = wanted("version") ?? list[0];
      const before = wanted("with") ?? list.find(({ version }) => version < chosen.version);
      const options = list.map(({ version, deleted }) => [String(version), `Version ${version}${deleted ? ", deleted" : ""}`]);
      return html`<div class="toolbar">
          <${Select} label="Version" value=${String(chosen.version)} options=${options} onChange=${(version) => setQuery({ version, with: null })} />
          ${chosen.deleted && html`<${Badge} kind="warn">deleted<//>`}
          <span class="muted">${chosen.type}, schema id ${chosen.id}${total > list.length ? `; the newest ${list.length} of ${total} versions` : ""}</span>
          <${DeletedToo} />
          <${Action} needs="admin" kind="quiet" onClick=${() => setDialog({ remove: chosen })}>Delete version ${chosen.version}…<//>
        </div>
        <${Panel} title=${`Version ${chosen.version}`}>
          ${chosen.references.length > 0 && html`<p class="small">It refers to ${chosen.references.map((each, i) => html`${i > 0 && ", "}<a key=${each.name} href=${address(path`/schemas/${each.subject}`, { version: each.version })}>${each.name}: ${each.subject} ${each.version}</a>`)}.</p>`}
          <pre class="text-view" tabindex="0" aria-label="Schema">${layOut(chosen.schema)}</pre>
        <//>
        ${["metadata", "rules"].map((name) => chosen[name] && html`<${Panel} key=${name} title=${name === "rules" ? "Rules, which Confluent's clients run" : "Metadata"}><pre class="text-view" tabindex="0" aria-label=${name}>${JSON.stringify(chosen[name], null, 2)}</pre><//>`)}
        ${before && html`<${Panel} title=${`Changed since version ${before.version}`} end=${html`<${Select} label="Compare with" value=${String(before.version)} options=${options.filter(([version]) => version !== String(chosen.version))} onChange=${(version) => setQuery({ with: version })} />`}><${Diff} before=${datum(before.schema)} after=${datum(chosen.schema)} /><//>`}
        ${dialog?.add && html`<${Add} known=${subject} like=${list[0]} onClose=${close} />`}
        ${dialog?.level && html`<${Level} subject=${subject} level=${of === "subject" ? compatibility : ""} registry=${of === "subject" ? "" : compatibility} onClose=${close} />`}
        ${dialog?.remove && html`<${Remove} subject=${subject} version=${dialog.remove === "subject" ? null : dialog.remove.version} permanent=${dialog.remove === "subject" ? list.every(({ deleted }) => deleted) : dialog.remove.deleted} onClose=${close} />`}`;
    }}<//>
  <//>`;
}

function Add({ known, like, onClose }) {
  const [subject, setSubject] = useState(known ?? "");
  const [type, setType] = useState(like?.type ?? "AVRO");
  const [schema, setSchema] = useState(like ? layOut(like.schema) : "");
  const [check, setCheck] = useState(null);
  const file = { AVRO: "schema.avsc", JSON: "schema.json", PROTOBUF: "schema.proto" }[type];
  const change = (set) => (value) => (set(value), setCheck(null));
  const send = (dry_run) => post(path`/api/schemas/${subject}`, { schema, type, references: like?.references ?? [], dry_run });
  return html`<${ActionDialog} title=${known ? `New version of ${known}` : "New subject"} verb=${check?.compatible ? "Register" : "Check"} wide ready=${subject !== "" && schema !== ""} onClose=${onClose}
    command=${`ottla schema register ${shell(subject || "SUBJECT")} ${file}`}
    done=${({ version, id }) => `${subject} has version ${version}, schema id ${id}`}
    run=${async () => {
      if (check?.compatible) return { ...(await send(false)), subject };
      setCheck(await send(true));
      return STAY;
    }}>
    ${!known && html`<${Field} label="Subject" hint="TOPIC-value or TOPIC-key"><input value=${subject} autofocus autocomplete="off" spellcheck=${false} onInput=${(event) => change(setSubject)(event.currentTarget.value)} /><//>
      <${Field} label="Type"><${Select} label="Type" value=${type} options=${TYPES} onChange=${change(setType)} /><//>`}
    <${Field} label=${`Schema (${TYPES.find(([id]) => id === type)?.[1] ?? type})`}><textarea rows="18" class="mono" spellcheck=${false} value=${schema} onInput=${(event) => change(setSchema)(event.currentTarget.value)}></textarea><//>
    ${check && html`<div class=${check.compatible ? "good" : "error-box"} role="status">${check.compatible ? (check.version ? `It is version ${check.version} already.` : "It fits the compatibility of the subject.") : "It does not fit:"}<ul>${check.messages.map((message, i) => html`<li key=${i}>${message}</li>`)}</ul></div>`}
    ${check?.compatible && like && html`<${Diff} before=${datum(like.schema)} after=${datum(schema)} />`}
  <//>`;
}

function Level({ subject, level: given, registry, onClose }) {
  const [level, setLevel] = useState(given);
  return html`<${ActionDialog} title=${`Compatibility of ${subject}`} verb="Set" ready=${level !== given} onClose=${onClose} done=${`The compatibility of ${subject} was set`}
    command=${`ottla schema compat ${shell(subject)} ${level ? `--set ${level}` : "--unset"}`}
    run=${() => put(path`/api/schemas/${subject}/compatibility`, { level: level || null })}>
    <${Field} label="Level" hint="What a new version must be able to read, and be read by. TRANSITIVE: all versions count, not only the one before.">
      <${Select} label="Level" value=${level} options=${[["", `That of the registry${registry ? ` (${registry})` : ""}`], ...LEVELS.map((each) => [each, each])]} onChange=${setLevel} />
    <//>
  <//>`;
}

function Remove({ subject, version, permanent, onClose }) {
  const what = version === null ? subject : `version ${version} of ${subject}`;
  const words = [`ottla schema delete ${shell(subject)}`, version !== null && `--version ${version}`, permanent && "--permanent"];
  return html`<${ActionDialog} title=${`Delete ${what}${permanent ? " for good" : ""}`} verb=${permanent ? "Delete for good" : "Delete"} danger onClose=${onClose} done=${`Deleted ${what}`}
    confirm=${permanent ? subject : undefined} command=${words.filter(Boolean).join(" ")}
    run=${() => del(path`/api/schemas/${subject}`, { version, permanent })}>
    <p>${permanent ? "Records that have its schema id can no longer be read, if no other subject has the schema." : "It is hidden from lists and compatibility checks. Its schema id still resolves: records have it."}</p>
  <//>`;
}
