// Bytes as offset, hexadecimal and text, sixteen a line.
import { html, useState } from "../html.js";
import { bytes as size } from "../format.js";

const LINES = 256;

const hex = (value, digits) => value.toString(16).padStart(digits, "0");

export function Hex({ bytes, label }) {
  const [lines, setLines] = useState(LINES);
  if (!bytes.length) return html`<p class="muted">No bytes.</p>`;
  const text = [];
  for (let at = 0; at < bytes.length && at < lines * 16; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const pairs = part.map((byte) => hex(byte, 2));
    const left = [pairs.slice(0, 8).join(" "), pairs.slice(8).join(" ")].join("  ").padEnd(48);
    text.push(`${hex(at, 6)}  ${left}  ${part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("")}`);
  }
  return html`<pre class="hex" tabindex="0" aria-label=${label}>${text.join("\n")}</pre>
    ${bytes.length > lines * 16 && html`<button type="button" class="link-button" onClick=${() => setLines(lines * 4)}>Show more of ${size(bytes.length)}</button>`}`;
}
