// Settings of a topic or broker: value, where it comes from, default, documentation; editable.
import { html, useState } from "./html.js";
import { patch } from "./api.js";
import { settingInWords, shell } from "./format.js";
import { Action, ActionDialog, Badge, Check, Empty, Facts, Field, Panel, SearchField, Select, bootstrap } from "./parts.js";
import { place, setQuery } from "./router.js";

const SOURCE = { topic: ["info", "set here"], broker: ["info", "this broker"], cluster: ["info", "all brokers"], static: ["", "broker's file"], default: ["", "default"] };

export function Configs({ configs, at, kind, name, reload }) {
  const [editing, setEditing] = useState(null);
  const { query } = place.value;
  const search = (query.get("search") ?? "").toLowerCase();
  const changed = query.get("changed") === "1";
  const rows = configs
    .filter((config) => (!changed || !config.is_default) && (!search || config.name.includes(search) || config.documentation?.toLowerCase().includes(search)))
    .sort((a, b) => Number(a.is_default) - Number(b.is_default) || a.name.localeCompare(b.name));
  return html`<${Panel} flush label="Settings">
    <div class="body toolbar">
      <${SearchField} label="Search settings" class="grow" />
      <${Check} label="Only what differs from the default" checked=${changed} onChange=${(on) => setQuery({ changed: on }, { replace: false })} />
    </div>
    ${rows.length === 0 && html`<${Empty} title=${configs.length ? "No setting fits" : "Nothing is set here"} />`}
    <ul class="config-list">
      ${rows.map((config) => html`<${Config} key=${config.name} config=${config} edit=${() => setEditing(config)} />`)}
    </ul>
    ${editing && html`<${Edit} config=${editing} at=${at} kind=${kind} name=${name} onClose=${(result) => (setEditing(null), result && reload())} />`}
  <//>`;
}

function Config({ config, edit }) {
  const [badge, words] = SOURCE[config.source] ?? ["", config.source];
  const value = config.sensitive ? "hidden" : config.value === null ? "null" : config.value === "" ? "empty" : config.value;
  const inWords = settingInWords(config.name, config.value);
  return html`<li>
    <div class="config-name"><code class="strong wrap">${config.name}</code></div>
    <div class="config-value"><code class="wrap ${config.sensitive || config.value === null || config.value === "" ? "muted" : ""}">${value}</code>${inWords && html` <span class="muted small nowrap">${inWords}</span>`}</div>
    <div class="config-source"><${Badge} kind=${config.is_default ? "" : badge || "info"} plain>${config.is_default ? "default" : words}<//></div>
    <div class="config-edit">${config.read_only ? html`<span class="muted small">read-only</span>` : html`<${Action} needs="admin" kind="quiet" onClick=${edit} aria-label=${`Change ${config.name}`}>Change<//>`}</div>
    <p class="config-doc muted small">${config.documentation}</p>
  </li>`;
}

function Edit({ config, at, kind, name, onClose }) {
  const [value, setValue] = useState(config.value ?? "");
  const [unset, setUnset] = useState(false);
  const here = !config.is_default && ["topic", "broker", "cluster"].includes(config.source);
  const flag = config.type === "boolean";
  const inWords = settingInWords(config.name, value);
  const command = unset ? `ottla config unset ${kind} ${shell(name)} ${config.name}` : `ottla config set ${kind} ${shell(name)} ${shell(`${config.name}=${value}`)}`;
  return html`<${ActionDialog} title=${config.name} verb=${unset ? "Reset" : "Save"} command=${command + bootstrap()} onClose=${onClose}
    done=${`${config.name} of ${name} ${unset ? "was reset" : "was changed"}`}
    run=${() => patch(at, unset ? { set: {}, unset: [config.name] } : { set: { [config.name]: value }, unset: [] })}>
    <p>${config.documentation}</p>
    <${Field} label=${`Value (${config.type})`} hint=${inWords}>
      ${flag
        ? html`<${Select} label="Value" value=${String(value)} options=${["true", "false"]} onChange=${setValue} disabled=${unset} />`
        : html`<input class="mono" value=${value} disabled=${unset} spellcheck=${false} onInput=${(event) => setValue(event.currentTarget.value)} />`}
    <//>
    ${here && html`<${Check} label="Remove this value, so that the next one counts" checked=${unset} onChange=${setUnset} />`}
    <${Facts} items=${[["Default", html`<code class="wrap">${config.default ?? "null"}</code>`], ...(config.synonyms ?? []).map((one) => [one.source, html`<code class="wrap">${one.name} = ${one.value ?? "null"}</code>`])]} />
  <//>`;
}
