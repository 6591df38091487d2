// The one graph: boxes on the grid that the server laid out, edges between them.
import { html, useMemo } from "./html.js";
import { compact, rate } from "./format.js";

const BOX = { width: 146, height: 54 };
const GAP = { x: 62, y: 26 };
const KIND = { topic: "Topic", flow: "Flow", table: "Table", view: "View", dead_letter: "Dead letters", pattern: "Topics by pattern" };

const fit = (text, letters) => (text.length > letters ? text.slice(0, letters - 1) + "…" : text);

/** `graph`: `{nodes: {id: {kind, name, layer, row, href}}, edges: [{from, to, rows_per_s, lag}]}`; `notes[id]` is a second line. */
export function Graph({ graph, notes = {}, failed = new Set(), selected, label }) {
  const drawn = useMemo(() => {
    const nodes = Object.entries(graph.nodes).map(([id, node]) => ({ id, ...node, x: node.layer * (BOX.width + GAP.x), y: node.row * (BOX.height + GAP.y) }));
    return { nodes, at: new Map(nodes.map((node) => [node.id, node])) };
  }, [graph.nodes]);
  const width = Math.max(...drawn.nodes.map(({ x }) => x), 0) + BOX.width + 4;
  const height = Math.max(...drawn.nodes.map(({ y }) => y), 0) + BOX.height + 4;
  return html`<div class="graph-box" tabindex="0" role="region" aria-label=${label}>
    <svg class="graph" width=${width} height=${height} viewBox="-2 -2 ${width} ${height}" role="group" aria-label=${label}>
      <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z" /></marker></defs>
      ${graph.edges.map((edge) => html`<${Edge} key=${`${edge.from}>${edge.to}`} edge=${edge} from=${drawn.at.get(edge.from)} to=${drawn.at.get(edge.to)} />`)}
      ${drawn.nodes.map((node) => {
        const classes = `node ${node.kind} ${failed.has(node.id) ? "failed" : ""} ${node.id === selected ? "selected" : ""}`;
        const box = html`<g class=${classes} transform="translate(${node.x} ${node.y})">
          <title>${node.name}</title>
          <rect width=${BOX.width} height=${BOX.height} rx="8" />
          <text class="kind" x="10" y="17">${KIND[node.kind] ?? node.kind}</text>
          <text class="note" x=${BOX.width - 10} y="17" text-anchor="end">${notes[node.id] ?? ""}</text>
          <text class="name" x="10" y="38">${fit(node.name, 18)}</text>
        </g>`;
        return node.href ? html`<a key=${node.id} href=${node.href}>${box}</a>` : html`<g key=${node.id}>${box}</g>`;
      })}
    </svg>
  </div>`;
}

function Edge({ edge, from, to }) {
  if (!from || !to) return null;
  const [x1, y1] = [from.x + BOX.width, from.y + BOX.height / 2];
  const [x2, y2] = [to.x, to.y + BOX.height / 2];
  const bend = Math.max(30, (x2 - x1) / 2);
  const words = [edge.rows_per_s > 0 && rate(edge.rows_per_s, " rows/s"), edge.lag > 0 && `lag ${compact(edge.lag)}`].filter(Boolean);
  const busy = edge.rows_per_s > 0;
  return html`<g>
    <path class="edge ${busy ? "busy" : ""}" d="M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 2} ${y2}" marker-end="url(#tip)" />
    ${words.map((text, i) => html`<text key=${i} class="edge-note" x=${(x1 + x2) / 2} y=${(y1 + y2) / 2 - 6 + i * 20} text-anchor="middle">${text}</text>`)}
  </g>`;
}
