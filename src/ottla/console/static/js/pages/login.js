// Signing in, with a token or as a user of the cluster.
import { html, useState } from "../html.js";
import { post, session } from "../api.js";
import { Mark } from "../icons.js";
import { Field, Problem, Segmented } from "../parts.js";
import { go, place } from "../router.js";

const WAYS = { token: "Token", scram: "User and password" };

/** Where to go afterwards: a page of this console, whatever the address says. */
function target() {
  const to = place.value.query.get("to") ?? (place.value.path === "/login" ? "/" : location.pathname + location.search);
  try {
    const url = new URL(to, location.origin);
    return url.origin === location.origin && url.pathname !== "/login" ? url.pathname + url.search : "/";
  } catch {
    return "/";
  }
}

export default function Login() {
  const ways = session.value.logins ?? ["token"];
  const [way, setWay] = useState(ways[0]);
  const [given, setGiven] = useState({ token: "", user: "", password: "" });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const input = (name, type, autocomplete) => html`<input type=${type} name=${name} autofocus=${type === "text" || way === "token"} autocomplete=${autocomplete} value=${given[name]} onInput=${(event) => setGiven({ ...given, [name]: event.currentTarget.value })} />`;
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const { token, user, password } = given;
      const to = target();
      session.value = await post("/api/login", way === "token" ? { token: token.trim() } : { user, password });
      go(to, { replace: true });
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  if (!session.value.login_required || session.value.role) {
    return html`<main class="login"><div class="panel"><div class="body stack"><p>${session.value.login_required ? "You are signed in." : "This console needs no login."}</p><a class="button main-action" href=${target()}>Go on</a></div></div></main>`;
  }
  return html`<main class="login">
    <form class="panel" onSubmit=${enter} novalidate>
      <div class="body stack">
        <div class="brand"><${Mark} />Ottla</div>
        <h1>Sign in</h1>
        ${session.value.bootstrap_servers && html`<p class="muted">${session.value.bootstrap_servers}</p>`}
        ${ways.length > 1 && html`<${Segmented} label="How to sign in" value=${way} options=${ways.map((name) => [name, WAYS[name] ?? name])} onChange=${setWay} />`}
        ${way === "token" ? html`<${Field} label="Token" hint="One of the file that the console was started with (--tokens)">${input("token", "password", "off")}<//>` : html`<${Field} label="User">${input("user", "text", "username")}<//><${Field} label="Password">${input("password", "password", "current-password")}<//>`}
        ${error && html`<${Problem} error=${error} />`}
        <button class="button main-action" disabled=${busy}>${busy ? "Signing in…" : "Sign in"}</button>
      </div>
    </form>
  </main>`;
}
