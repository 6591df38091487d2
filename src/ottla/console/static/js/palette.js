// The command palette: Ctrl-K or `/` goes to any page, topic or group by a few letters.
import { html, signal, useEffect, useRef, useState } from "./html.js";
import { get, session } from "./api.js";
import { PAGES } from "./navigation.js";
import { address, go, path, place } from "./router.js";
import { choose } from "./theme.js";

export const opened = signal(false);

const typing = (element) => element?.closest?.("input, textarea, select, [contenteditable]");

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    opened.value = !opened.value;
  } else if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target) && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    opened.value = true;
  }
});

function fixed() {
  const pages = PAGES.flatMap(([, list]) => list.map(([href, name]) => ({ name, kind: "page", href })));
  const topic = place.value.path.match(/^\/topics\/([^/]+)/)?.[1];
  const here = topic
    ? [
        { name: "Records of this topic", kind: "page", href: `/topics/${topic}/records` },
        { name: "Follow this topic live", kind: "page", href: `/topics/${topic}/records?live=1` },
        { name: "Settings of this topic", kind: "page", href: `/topics/${topic}?tab=configs` },
      ]
    : [];
  const colours = ["light", "dark", "system"].map((name) => ({ name: `Colours: ${name}`, kind: "action", act: () => choose(name) }));
  return [...here, ...pages, ...colours];
}

/** Every letter of `wanted` in order; earlier and adjacent ones count more. Null if it does not fit. */
export function score(text, wanted) {
  const [have, want] = [text.toLowerCase(), wanted.toLowerCase()];
  const whole = have.indexOf(want);
  if (whole >= 0) return 1000 - whole - have.length / 100;
  let at = -1;
  let points = 0;
  for (const letter of want) {
    const found = have.indexOf(letter, at + 1);
    if (found < 0) return null;
    points += found === at + 1 ? 3 : 0;
    at = found;
  }
  return points - have.length / 100;
}

export function Palette() {
  return opened.value && session.value ? html`<${Open} />` : null;
}

function Open() {
  const box = useRef(null);
  const list = useRef(null);
  const [text, setText] = useState("");
  const [found, setFound] = useState([]);
  const [at, setAt] = useState(0);
  const close = () => (opened.value = false);
  useEffect(() => {
    const element = box.current;
    const before = document.activeElement;
    element.showModal();
    return () => {
      element.close();
      before?.focus?.();
    };
  }, []);
  useEffect(() => {
    if (!text.trim()) return setFound([]);
    const cancel = new AbortController();
    const timer = setTimeout(async () => {
      const query = { search: text.trim(), limit: 8 };
      const read = (kind, where) => get(address(`/api/${kind}s`, query), { signal: cancel.signal }).then(
        (answer) => answer.rows.map((row) => ({ name: row[kind], kind, href: where(row[kind]) })),
        () => [],
      );
      const [topics, groups] = await Promise.all([
        read("topic", (name) => path`/topics/${name}`),
        read("group", (name) => path`/groups/${name}`),
      ]);
      if (!cancel.signal.aborted) setFound([...topics, ...groups]);
    }, 120);
    return () => {
      cancel.abort();
      clearTimeout(timer);
    };
  }, [text]);
  const wanted = text.trim();
  const ranked = wanted
    ? fixed()
        .map((item) => ({ ...item, points: score(item.name, wanted) }))
        .filter((item) => item.points !== null)
        .sort((a, b) => b.points - a.points)
    : fixed();
  const strong = ranked.filter((item) => !wanted || item.points > 500);
  const items = [...strong, ...found, ...ranked.filter((item) => !strong.includes(item))].slice(0, 30);
  const current = Math.min(at, items.length - 1);
  const act = (item) => {
    if (!item) return;
    close();
    if (item.act) item.act();
    else go(item.href);
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = (current + step + items.length) % items.length;
      setAt(next);
      list.current.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      act(items[current]);
    }
  };
  return html`<dialog class="palette" ref=${box} aria-label="Go to" onCancel=${(event) => (event.preventDefault(), close())} onClose=${() => box.current && close()} onClick=${(event) => event.target === box.current && close()}>
    <input
      autofocus
      role="combobox"
      aria-expanded="true"
      aria-controls="palette-list"
      aria-activedescendant=${items.length ? `palette-${current}` : undefined}
      aria-label="Page, topic or group"
      placeholder="Page, topic or group…"
      spellcheck=${false}
      autocomplete="off"
      value=${text}
      onInput=${(event) => (setText(event.currentTarget.value), setAt(0))}
      onKeyDown=${onKeyDown}
    />
    <ul role="listbox" id="palette-list" aria-label="Found" ref=${list} tabindex="-1">
      ${items.map(
        (item, i) => html`<li key=${item.kind + item.name} id="palette-${i}" role="option" aria-selected=${String(i === current)} onClick=${() => act(item)} onMouseMove=${() => i !== current && setAt(i)}>
          <span class="clip">${item.name}</span><span class="kind">${item.kind}</span>
        </li>`,
      )}
    </ul>
    <div class="foot"><span><kbd>↑</kbd> <kbd>↓</kbd> choose</span><span><kbd>Enter</kbd> go</span><span><kbd>Esc</kbd> close</span></div>
  </dialog>`;
}
