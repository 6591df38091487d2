// Small parts that pages share.
import { html, useEffect, useId, useRef, useState } from "./html.js";
import { session } from "./api.js";
import { ago, time } from "./format.js";
import { place, setQuery, withQuery } from "./router.js";
import { complain, toast } from "./toast.js";

export function Page({ title, badge, actions, tabs, children }) {
  useEffect(() => {
    document.title = `${typeof title === "string" ? title : "Ottla"} · Ottla`;
  }, [title]);
  return html`<div class="page-head">
      <h1>${title}</h1>
      ${badge}
      ${actions && html`<div class="actions">${actions}</div>`}
    </div>
    ${tabs} ${children}`;
}

export function Panel({ title, end, flush, children, label }) {
  return html`<section class="panel" aria-label=${label ?? (typeof title === "string" ? title : undefined)}>
    ${title && html`<header><h2>${title}</h2>${end && html`<div class="end row">${end}</div>`}</header>`}
    <div class="body ${flush ? "flush" : ""}">${children}</div>
  </section>`;
}

/** Figures with a label: `[{label, value, note?, href?, kind?}]`. */
export function Figures({ items }) {
  return html`<div class="figures">
    ${items.filter(Boolean).map(({ label, value, note, href, kind, spark }) => {
      const inner = html`<span class="label">${label}</span><span class="value ${kind ?? ""}">${value}</span>${note && html`<span class="note">${note}</span>`}${spark}`;
      return href ? html`<a key=${label} class="figure" href=${href}>${inner}</a>` : html`<div key=${label} class="figure">${inner}</div>`;
    })}
  </div>`;
}

export const Facts = ({ items }) =>
  html`<dl class="facts">${items.filter(Boolean).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value ?? "–"}</dd>`)}</dl>`;

export const Badge = ({ kind = "", plain, children }) => html`<span class="badge ${kind} ${plain ? "plain" : ""}">${children}</span>`;

const GOOD = new Set(["stable", "running", "completecommit", "ok", "done", "up"]);
const BAD = new Set(["dead", "failed", "bad", "down", "lost"]);
const BUSY = new Set(["preparingrebalance", "completingrebalance", "assigning", "reconciling", "ongoing", "preparecommit", "prepareabort", "warning", "retrying", "starting"]);

/** The state of a group, transaction, pipeline, job, by its own name. */
export function State({ state }) {
  if (!state) return html`<span class="muted">–</span>`;
  const word = state.toLowerCase();
  const kind = GOOD.has(word) ? "good" : BAD.has(word) ? "bad" : BUSY.has(word) ? "warn" : "";
  return html`<${Badge} kind=${kind}>${state}<//>`;
}

export function Time({ ms }) {
  if (ms === null || ms === undefined || ms < 0) return html`<span class="muted">–</span>`;
  return html`<time datetime=${new Date(ms).toISOString()} title=${ago(ms)} class="nowrap">${time(ms)}</time>`;
}

export const Ago = ({ ms }) => html`<span title=${time(ms)} class="nowrap">${ago(ms)}</span>`;

export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong>${children}</div>`;

export const Loading = ({ what = "Reading…" }) => html`<div class="loading" role="status"><span class="spinner"></span>${what}</div>`;

export const Problem = ({ error }) =>
  html`<div class="error-box" role="alert">${error.message}${error.hint && html`<div class="hint small">${error.hint}</div>`}</div>`;

/** A part's data, or why there is none. */
export function Loaded({ of, children }) {
  if (of.error && !of.data) return html`<${Problem} error=${of.error} />`;
  if (!of.data) return html`<${Loading} />`;
  return html`${of.error && html`<${Problem} error=${of.error} />`}${children(of.data)}`;
}

/** Tabs whose choice is in the address. */
export function Tabs({ name = "tab", items, label = "Parts of this page" }) {
  const chosen = currentTab(items, name);
  return html`<nav class="tabs" aria-label=${label}>
    ${items.map(
      ({ id, title, href }) =>
        html`<a key=${id} href=${href ?? withQuery({ [name]: id === items[0].id ? null : id })} aria-current=${!href && id === chosen ? "page" : undefined}>${title}</a>`,
    )}
  </nav>`;
}

export function currentTab(items, name = "tab") {
  const wanted = place.value.query.get(name);
  return items.some(({ id }) => id === wanted) ? wanted : items[0].id;
}

/** A field whose text goes to the address after a pause of typing. */
export function SearchField({ name = "search", label, placeholder, class: extra = "" }) {
  const given = place.value.query.get(name) ?? "";
  const [text, setText] = useState(given);
  const timer = useRef(0);
  const sent = useRef(given);
  useEffect(() => {
    if (given !== sent.current) {
      sent.current = given;
      setText(given);
    }
  }, [given]);
  const send = (value) => {
    sent.current = value;
    setQuery({ [name]: value || null });
  };
  return html`<input
    type="search"
    class=${extra}
    aria-label=${label}
    placeholder=${placeholder ?? label}
    value=${text}
    spellcheck=${false}
    onInput=${(event) => {
      const value = event.currentTarget.value;
      setText(value);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => send(value), 200);
    }}
    onKeyDown=${(event) => event.key === "Enter" && (clearTimeout(timer.current), send(event.currentTarget.value))}
  />`;
}

export function Select({ label, value, options, onChange, ...rest }) {
  return html`<select aria-label=${label} value=${value} onChange=${(event) => onChange(event.currentTarget.value)} ...${rest}>
    ${options.map((option) => {
      const [id, title] = Array.isArray(option) ? option : [option, option];
      return html`<option key=${id} value=${id} selected=${id === value}>${title}</option>`;
    })}
  </select>`;
}

export function QuerySelect({ name, label, options, fallback = "" }) {
  return html`<${Select} label=${label} value=${place.value.query.get(name) ?? fallback} options=${options} onChange=${(value) => setQuery({ [name]: value === fallback ? null : value }, { replace: false })} />`;
}

export function Segmented({ label, value, options, onChange }) {
  return html`<div class="segmented" role="group" aria-label=${label}>
    ${options.map(([id, title]) => html`<button key=${id} type="button" aria-pressed=${String(id === value)} onClick=${() => onChange(id)}>${title}</button>`)}
  </div>`;
}

export const Field = ({ label, hint, children }) =>
  html`<label class="field"><span>${label}</span>${children}${hint && html`<span class="hint">${hint}</span>`}</label>`;

export const Check = ({ label, checked, onChange, ...rest }) =>
  html`<label class="check"><input type="checkbox" checked=${checked} onChange=${(event) => onChange(event.currentTarget.checked)} ...${rest} />${label}</label>`;

export async function copy(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    toast(what, { kind: "good", seconds: 2 });
  } catch {
    toast("The browser did not let the page copy.", { kind: "bad", hint: "Mark the text and press Ctrl-C." });
  }
}

/** The `ottla` command that does the same, to copy. */
export function Command({ text, label = "Command" }) {
  return html`<div class="command">
    <pre aria-label=${label}>${text}</pre>
    <button type="button" class="button quiet" onClick=${() => copy(text, "Command copied")}>Copy</button>
  </div>`;
}

/** ` -b host:port` for commands, unless it is the command's own default. */
export function bootstrap() {
  const servers = session.value?.bootstrap_servers;
  return !servers || servers === "127.0.0.1:9092" ? "" : ` -b ${servers}`;
}

export const can = (what) => Boolean(session.value?.can?.[what]);

/** A button for those who may; the others read why they may not. */
export function Action({ needs = "write", kind = "", onClick, children, disabled, ...rest }) {
  const allowed = can(needs);
  const why = session.value?.read_only ? "This console is read-only" : `Your role may not do this (it needs ${needs === "admin" ? "admin" : "editor"})`;
  return html`<button type="button" class="button ${kind}" disabled=${!allowed || disabled} title=${allowed ? undefined : why} onClick=${onClick} ...${rest}>${children}</button>`;
}

export function Dialog({ title, onClose, wide, children, footer, onSubmit }) {
  const box = useRef(null);
  const id = useId();
  useEffect(() => {
    const element = box.current;
    element.showModal();
    return () => element.open && element.close();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    onSubmit?.(event);
  };
  return html`<dialog
    ref=${box}
    class=${wide ? "wide" : ""}
    aria-labelledby=${id}
    onCancel=${(event) => (event.preventDefault(), onClose())}
    onClose=${() => box.current && onClose()}
    onClick=${(event) => event.target === box.current && onClose()}
  >
    <form onSubmit=${submit} novalidate>
      <header>
        <h2 id=${id}>${title}</h2>
        <button type="button" class="button quiet icon" aria-label="Close" onClick=${onClose}>×</button>
      </header>
      <div class="content">${children}</div>
      ${footer && html`<footer>${footer}</footer>`}
    </form>
  </dialog>`;
}

/** What `run` of an ActionDialog returns if the dialog is to stay: a preview. */
export const STAY = Symbol("stay");

/**
 * A dialog that does one thing: fields, its `ottla` command, a button. `run` returns a promise; its error is shown in words.
 * `confirm` is a word to type before something is lost for good.
 */
export function ActionDialog({ title, verb, danger, wide, command, confirm, run, onClose, done, children, ready = true }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [typed, setTyped] = useState("");
  const act = async () => {
    setBusy(true);
    setError(null);
    try {
      const result = await run();
      if (result !== STAY) {
        if (done) toast(typeof done === "function" ? done(result) : done, { kind: "good" });
        onClose(result ?? {});
        return;
      }
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  const may = ready && !busy && (!confirm || typed === confirm);
  return html`<${Dialog}
    title=${title}
    wide=${wide}
    onClose=${() => box.current && onClose()}
    onSubmit=${() => may && act()}
    footer=${html`<button type="button" class="button" onClick=${() => onClose()}>Cancel</button>
      <button type="submit" class="button main-action ${danger ? "danger" : ""}" disabled=${!may}>${busy ? "Working…" : verb}</button>`}
  >
    ${children}
    ${confirm && html`<${Field} label=${`Type ${confirm} to confirm`}><input value=${typed} autocomplete="off" onInput=${(event) => setTyped(event.currentTarget.value)} /><//>`}
    ${error && html`<${Problem} error=${error} />`}
    ${command && html`<div class="stack tight"><span class="muted small">The same from a terminal:</span><${Command} text=${command} /></div>`}
  <//>`;
}

/** Runs an action; its error becomes a toast. */
export async function attempt(action, done) {
  try {
    const result = await action();
    if (done) toast(done, { kind: "good" });
    return result;
  } catch (error) {
    complain(error);
    return undefined;
  }
}

export function Progress({ done, all, kind = "", label = "Progress" }) {
  const share = all ? Math.min(1, done / all) : 0;
  return html`<div class="bar-track" role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(share * 100)}>
    <div class="bar-fill ${kind}" style=${{ width: `${share * 100}%` }}></div>
  </div>`;
}
