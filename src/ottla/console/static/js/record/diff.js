// What changed from one text to the next, line by line (longest common subsequence).
import { html } from "../html.js";
import { pretty } from "./datum.js";

const LINES_MAX = 1500;

/** `[[" " | "-" | "+", line], …]` */
export function difference(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const [left, right] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const same = (lines) => lines.map((text) => [" ", text]);
  const middle = left.length * right.length > LINES_MAX ** 2 ? [...left.map((text) => ["-", text]), ...right.map((text) => ["+", text])] : align(left, right);
  return [...same(a.slice(0, head)), ...middle, ...same(a.slice(a.length - tail))];
}

function align(a, b) {
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) lines.push([" ", a[i]]), i++, j++;
    else if (i < a.length && (j === b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) lines.push(["-", a[i]]), i++;
    else lines.push(["+", b[j]]), j++;
  }
  return lines;
}

const AROUND = 2;

/** The lines that changed, with two around them. `before` and `after` are datums; null is no value. */
export function Diff({ before, after }) {
  const lines = difference(before === undefined ? "" : pretty(before), pretty(after));
  const changed = lines.map(([mark]) => mark !== " ");
  if (!changed.includes(true)) return html`<p class="muted small">The value is the same.</p>`;
  const near = lines.map((_, i) => changed.slice(Math.max(0, i - AROUND), i + AROUND + 1).includes(true));
  const drawn = [];
  lines.forEach(([mark, text], i) => {
    if (near[i]) drawn.push(html`<div key=${i} class=${mark === "+" ? "diff-added" : mark === "-" ? "diff-removed" : ""}>${mark} ${text}</div>`);
    else if (near[i - 1] || i === 0) drawn.push(html`<div key=${i} class="muted">  …</div>`);
  });
  return html`<pre class="diff">${drawn}</pre>`;
}
