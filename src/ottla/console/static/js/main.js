// Starts the console: who we are, then the frame with the page that the address names.
import { html, render, useEffect, useState } from "./html.js";
import { get, session } from "./api.js";
import { match, place } from "./router.js";
import "./theme.js";
import { Frame } from "./shell.js";
import { Empty, Loading, Page, Problem } from "./parts.js";

const ROUTES = [
  ["/", () => import("./pages/overview.js")],
  ["/brokers", () => import("./pages/brokers.js")],
  ["/brokers/:broker", () => import("./pages/broker.js")],
  ["/topics", () => import("./pages/topics.js")],
  ["/topics/:topic", () => import("./pages/topic.js")],
  ["/topics/:topic/records", () => import("./pages/records.js")],
  ["/groups", () => import("./pages/groups.js")],
  ["/groups/:group", () => import("./pages/group.js")],
  ["/transactions", () => import("./pages/transactions.js")],
  ["/pipelines", () => import("./pages/pipelines.js")],
  ["/pipelines/:pipeline", () => import("./pages/pipeline.js")],
  ["/trace", () => import("./pages/trace.js")],
  ["/dead-letters", () => import("./pages/dead-letters.js")],
  ["/dead-letters/:topic", () => import("./pages/dead-letter.js")],
  ["/schemas", () => import("./pages/schemas.js")],
  ["/schemas/:subject", () => import("./pages/schemas.js")],
  ["/acls", () => import("./pages/acls.js")],
  ["/users", () => import("./pages/users.js")],
  ["/quotas", () => import("./pages/quotas.js")],
  ["/audit", () => import("./pages/audit.js")],
];

function Routed() {
  const { path } = place.value;
  const found = match(ROUTES, path);
  const [page, setPage] = useState(null);
  useEffect(() => {
    if (!found) return undefined;
    let current = true;
    found
      .target()
      .then((module) => current && setPage({ target: found.target, View: module.default }))
      .catch((error) => current && setPage({ target: found.target, error }));
    return () => (current = false);
  }, [found?.target]);
  if (!found) return html`<${Page} title="No such page"><${Empty} title="Nothing is at this address"><a href="/">Go to the overview</a><//><//>`;
  if (page?.target !== found.target) return html`<${Loading} />`;
  if (page.error) return html`<${Problem} error=${page.error} />`;
  return html`<${page.View} key=${path} ...${found.parameters} />`;
}

function App() {
  const [error, setError] = useState(null);
  const [Login, setLogin] = useState(null);
  const begin = () =>
    get("/api/session")
      .then((found) => {
        session.value = found;
        setError(null);
      })
      .catch((problem) => {
        setError(problem);
        setTimeout(begin, 2000);
      });
  useEffect(() => void begin(), []);
  const known = session.value;
  const login = place.value.path === "/login" || (known?.login_required && !known.role);
  useEffect(() => {
    if (login && !Login) import("./pages/login.js").then((module) => setLogin(() => module.default));
  }, [login]);
  if (!known) return error ? html`<main class="page"><${Problem} error=${error} /></main>` : null;
  if (login) return Login && html`<${Login} />`;
  return html`<${Frame}><${Routed} /><//>`;
}

render(html`<${App} />`, document.getElementById("app"));
