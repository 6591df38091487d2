// JSON as a tree: branches open and close, a leaf can become a column or a filter.
import { html, useState } from "../html.js";
import { count } from "../format.js";
import { ExactNumber, literal, spell } from "./datum.js";

const CHUNK = 100;

const branch = (value) => value !== null && typeof value === "object" && !(value instanceof ExactNumber);

export function Tree({ value, root = ["value"], onColumn, onFilter }) {
  return html`<ul class="tree" role="list"><${Node} name=${null} value=${value} at=${root} depth=${0} onColumn=${onColumn} onFilter=${onFilter} /></ul>`;
}

function Node({ name, value, at, depth, onColumn, onFilter }) {
  const [open, setOpen] = useState(depth < 3);
  const [many, setMany] = useState(CHUNK);
  const label = name === null ? "" : html`<span class="tree-name">${String(name)}</span>`;
  if (!branch(value)) {
    return html`<li class="tree-leaf">
      ${label}<${Leaf} value=${value} />
      ${name !== null && onColumn && html`<span class="tree-tools">
        <button type="button" class="link-button small" title=${`Show ${spell(at)} as a column`} onClick=${() => onColumn(spell(at))}>column</button>
        ${onFilter && html`<button type="button" class="link-button small" title=${`Only records with this ${spell(at)}`} onClick=${() => onFilter(value === null ? `${spell(at)} is None` : `${spell(at)} == ${literal(value)}`)}>filter</button>`}
      </span>`}
    </li>`;
  }
  const entries = Array.isArray(value) ? value.map((one, i) => [i, one]) : Object.entries(value);
  const size = Array.isArray(value) ? `[${count(entries.length)}]` : `{${count(entries.length)}}`;
  if (!entries.length) return html`<li class="tree-leaf">${label}<span class="muted">${Array.isArray(value) ? "[]" : "{}"}</span></li>`;
  return html`<li>
    <button type="button" class="tree-branch" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>
      <span class="tree-arrow" aria-hidden="true">${open ? "▾" : "▸"}</span>${label}<span class="muted small">${size}</span>
    </button>
    ${open && html`<ul role="list">
      ${entries.slice(0, many).map(([key, one]) => html`<${Node} key=${key} name=${key} value=${one} at=${[...at, key]} depth=${depth + 1} onColumn=${onColumn} onFilter=${onFilter} />`)}
      ${entries.length > many && html`<li><button type="button" class="link-button small" onClick=${() => setMany(many + CHUNK * 5)}>${count(entries.length - many)} more</button></li>`}
    </ul>`}
  </li>`;
}

function Leaf({ value }) {
  if (value === null) return html`<span class="tree-null">null</span>`;
  if (typeof value === "string") return html`<span class="tree-text">"${value}"</span>`;
  return html`<span class="tree-number">${String(value)}</span>`;
}
