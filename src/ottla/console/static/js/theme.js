// Light or dark: what the system prefers, unless the reader chose.
import { effect, signal } from "./html.js";

const KEY = "ottla.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export const choice = signal(localStorage.getItem(KEY) ?? "system");
const system = signal(dark.matches);
dark.addEventListener("change", () => (system.value = dark.matches));

/** "light" or "dark": charts read it, for a canvas knows no variables. */
export const theme = signal("light");

effect(() => {
  theme.value = choice.value === "system" ? (system.value ? "dark" : "light") : choice.value;
  document.documentElement.dataset.theme = theme.value;
});

export function choose(name) {
  choice.value = name;
  if (name === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, name);
}
