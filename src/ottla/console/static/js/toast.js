// Short messages at the corner: what was done, or why it was not. Errors stay until they are closed.
import { html, signal } from "./html.js";

const toasts = signal([]);
let next = 1;

export function toast(words, { kind = "", hint = "", seconds = kind === "bad" ? 0 : 5 } = {}) {
  const id = next++;
  toasts.value = [...toasts.value.slice(-4), { id, words, kind, hint }];
  if (seconds) setTimeout(() => close(id), seconds * 1000);
}

/** An error as a toast. A cancelled request is none. */
export function complain(error) {
  if (error?.name === "AbortError") return;
  toast(error?.message ?? String(error), { kind: "bad", hint: error?.hint ?? "" });
}

const close = (id) => (toasts.value = toasts.value.filter((one) => one.id !== id));

export function Toasts() {
  return html`<div class="toasts" role="region" aria-label="Messages" aria-live="polite">
    ${toasts.value.map(
      ({ id, words, kind, hint }) => html`<div key=${id} class="toast ${kind}" role=${kind === "bad" ? "alert" : "status"}>
        <div class="words"><div>${words}</div>${hint && html`<div class="muted small">${hint}</div>`}</div>
        <button class="button quiet icon" aria-label="Close message" onClick=${() => close(id)}>×</button>
      </div>`,
    )}
  </div>`;
}
