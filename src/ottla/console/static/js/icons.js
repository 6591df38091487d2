// Icons of the navigation: 16 by 16, drawn with strokes of the text's colour.
import { html } from "./html.js";

const PATHS = {
  overview: "M2 2h5v6H2zM9 2h5v4H9zM9 8h5v6H9zM2 10h5v4H2z",
  brokers: "M2 3h12v4H2zM2 9h12v4H2zM4.5 5h.01M4.5 11h.01",
  topics: "M2 4h12M2 8h12M2 12h8",
  records: "M3 2h7l3 3v9H3zM10 2v3h3M5.5 8h5M5.5 11h5",
  groups: "M6 7a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1.5 14c.3-3 2-4.5 4.5-4.5s4.200 1.500 4.500 4.500M10.500 2.300a2.500 2.500 0 0 1 0 4.500M12 9.800c1.500.6 2.400 2 2.500 4.200",
  transactions: "M2 5h10M9 2l3 3-3 3M14 11H4M7 8l-3 3 3 3",
  pipelines: "M2 3h4v3H2zM10 6.500h4v3h-4zM2 10h4v3H2zM6 4.500h2.500v3.500H10M6 11.500h2.500V8",
  deadletters: "M2 4h12v9H2zM2 4l6 5 6-5M6 1.500h4",
  schemas: "M5 2C3 2 4 6 2 8c2 2 1 6 3 6M11 2c2 0 1 4 3 6-2 2-1 6-3 6",
  acls: "M8 1.500 13.500 4v4c0 3-2.200 5.300-5.500 6.500C4.700 13.300 2.500 11 2.500 8V4zM6 8l1.500 1.500L10.500 6.500",
  users: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.500 14.500c.4-3.500 2.500-4.500 5.500-4.500s5.100 1 5.500 4.500",
  quotas: "M2 12a6 6 0 1 1 12 0M8 12l3-4",
  audit: "M4 2h8v12H4zM6 5h4M6 8h4M6 11h2",
  menu: "M2 4h12M2 8h12M2 12h12",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM11 11l3 3",
  light: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  dark: "M13.500 9.500A6 6 0 0 1 6.500 2.500a6 6 0 1 0 7 7z",
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
};

export const Icon = ({ name }) =>
  html`<svg viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

export const Mark = () =>
  html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="var(--accent)" /><circle cx="12.5" cy="16" r="6" fill="none" stroke="var(--on-accent)" stroke-width="3" /><path d="M22 9.500v13M26 12.500v7" stroke="var(--on-accent)" stroke-width="3" stroke-linecap="round" /></svg>`;
