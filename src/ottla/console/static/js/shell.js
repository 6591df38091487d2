// The frame around every page: navigation, the bar with the palette, the banner of an outage.
import { html, signal, useEffect, useRef } from "./html.js";
import { outage, post, session } from "./api.js";
import { Icon, Mark } from "./icons.js";
import { PAGES } from "./navigation.js";
import { Palette, opened } from "./palette.js";
import { attempt } from "./parts.js";
import { place } from "./router.js";
import { choice, choose } from "./theme.js";
import { Toasts } from "./toast.js";

const menu = signal(false);

export function Frame({ children }) {
  const { path } = place.value;
  const main = useRef(null);
  useEffect(() => {
    menu.value = false;
  }, [path]);
  return html`<a class="skip" href="#page" onClick=${(event) => (event.preventDefault(), main.current.focus())}>Skip to the page</a>
    <div class="frame">
      <${Side} path=${path} />
      ${menu.value && html`<button class="scrim" aria-label="Close the menu" onClick=${() => (menu.value = false)}></button>`}
      <div class="main">
        <header class="bar">
          <button class="button quiet icon menu-button" aria-label="Menu" aria-expanded=${String(menu.value)} onClick=${() => (menu.value = !menu.value)}><${Icon} name="menu" /></button>
          <${Crumbs} path=${path} />
          <button class="button search-button" onClick=${() => (opened.value = true)}>
            <span class="row"><${Icon} name="search" /><span class="words">Go to…</span></span><kbd>Ctrl K</kbd>
          </button>
          <${ThemeSwitch} />
        </header>
        <${Banner} />
        <main id="page" class="page" tabindex="-1" ref=${main}>${children}</main>
      </div>
    </div>
    <${Palette} /><${Toasts} />`;
}

function Side({ path }) {
  const { bootstrap_servers: servers, user, role, read_only: readOnly, version, login_required: login } = session.value;
  const current = (href) => (href === "/" ? path === "/" : path === href || path.startsWith(href + "/"));
  return html`<aside class="side ${menu.value ? "open" : ""}">
    <a class="brand" href="/"><${Mark} />Ottla</a>
    <div class="cluster-name">${servers}</div>
    <nav aria-label="Pages">
      ${PAGES.map(
        ([title, pages]) => html`<div class="nav" key=${title}>
          <div class="nav-title">${title}</div>
          ${pages.map(([href, name, icon]) => html`<a key=${href} href=${href} aria-current=${current(href) ? "page" : undefined}><${Icon} name=${icon} />${name}</a>`)}
        </div>`,
      )}
    </nav>
    <div class="side-foot">
      ${readOnly && html`<div>Read-only</div>`}
      ${user && html`<div class="wrap">${user} (${role})</div>`}
      ${login && html`<button class="link-button" onClick=${signOut}>Sign out</button>`}
      <div>Version ${version} · <a href="/api/openapi.json" target="_blank" rel="noreferrer">API</a></div>
    </div>
  </aside>`;
}

async function signOut() {
  await attempt(() => post("/api/logout"));
  location.assign("/login");
}

function Crumbs({ path }) {
  const words = path.split("/").filter(Boolean).map((word) => {
    try {
      return decodeURIComponent(word);
    } catch {
      return word;
    }
  });
  const titles = Object.fromEntries(PAGES.flatMap(([, pages]) => pages.map(([href, name]) => [href, name])));
  const hrefs = words.map((_, i) => "/" + path.split("/").filter(Boolean).slice(0, i + 1).join("/"));
  return html`<nav class="crumbs" aria-label="Where you are">
    ${words.length === 0 && html`<span aria-current="page">Overview</span>`}
    ${words.map((word, i) => {
      const name = titles[hrefs[i]] ?? (i === 2 ? word[0].toUpperCase() + word.slice(1) : word);
      return i === words.length - 1
        ? html`<span key=${i} aria-current="page">${name}</span>`
        : html`<a key=${i} href=${hrefs[i]}>${name}</a><span aria-hidden="true">/</span>`;
    })}
  </nav>`;
}

function ThemeSwitch() {
  const next = { system: "light", light: "dark", dark: "system" }[choice.value];
  const words = { system: "as the system has it", light: "light", dark: "dark" };
  return html`<button class="button quiet icon" title=${`Colours: ${words[choice.value]}`} aria-label=${`Colours: ${words[choice.value]}. Change to ${words[next]}`} onClick=${() => choose(next)}>
    <${Icon} name=${choice.value} />
  </button>`;
}

function Banner() {
  const trouble = outage.value;
  if (!trouble) return html`<div role="status" aria-live="polite"></div>`;
  return html`<div class="banner" role="alert">
    <span class="spinner"></span><span>${trouble.message}</span>
    <span class="small">${trouble.kind === "broker" ? "What the page shows is from before. It goes on when a broker answers." : "Is `ottla console` still running? The page goes on when it answers."}</span>
  </div>`;
}
