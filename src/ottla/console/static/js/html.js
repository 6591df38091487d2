// Preact, its hooks and signals, bound to htm. Values in templates become text nodes; there is no way to write HTML from a value.
import { Fragment, createContext, h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { Fragment, createContext, render };
export { useCallback, useContext, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export { batch, computed, effect, signal } from "../vendor/signals.js";
