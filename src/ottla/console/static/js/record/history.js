// The history of a key: each value with what changed since the one before.
import { html } from "../html.js";
import { duration } from "../format.js";
import { Badge, Empty, Time } from "../parts.js";
import { Diff } from "./diff.js";
import { linkTo } from "./viewer.js";

/** `records` of one key, oldest first. */
export function KeyHistory({ records }) {
  if (!records.length) return html`<${Empty} title="No record with this key" />`;
  return html`<ol class="history">
    ${records
      .map((record, i) => {
        const before = records[i - 1];
        return html`<li key=${`${record.partition}:${record.offset}`} class="panel">
          <header>
            <a class="strong" href=${linkTo(record)}>${record.topic}-${record.partition} @ ${record.offset}</a>
            <${Time} ms=${record.timestamp} />
            ${before && html`<span class="muted small">${duration((record.timestamp - before.timestamp) / 1000)} later</span>`}
            ${i === records.length - 1 && html`<${Badge} kind="info" plain>latest<//>`}
            ${record.value === null && html`<${Badge} kind="warn" plain>tombstone<//>`}
          </header>
          <div class="body"><${Diff} before=${before?.value} after=${record.value} /></div>
        </li>`;
      })
      .reverse()}
  </ol>`;
}
