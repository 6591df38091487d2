// The one chart (uPlot), and sparklines (SVG).
import { html, useEffect, useMemo, useRef } from "./html.js";
import uPlot from "../vendor/uplot.js";
import { compact, time } from "./format.js";
import { theme } from "./theme.js";

// Times of the axis by 24 hours: [step in seconds, form, …] as uPlot has them.
const CLOCK = [
  [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [0.001, "{HH}:{mm}:{ss}.{fff}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
];

// A bar begins at its time: the last one needs its width too.
const past = ({ data: [times] }, low, high) => [low, high + (times.length > 1 ? times.at(-1) - times.at(-2) : 1)];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * `times` in milliseconds and `series`: `[{label, values, format?, scale?, bars?}]`. `onSelect(from_ms, until_ms)` makes a stretch of
 * time choosable with the mouse.
 */
export function Chart({ times, series, label, height = 180, onSelect, empty = "No figures yet: they are collected while the console runs." }) {
  const box = useRef(null);
  const plot = useRef(null);
  const select = useRef(onSelect);
  select.current = onSelect;
  const shape = series.map(({ label: name, scale, bars }) => `${name}|${scale}|${bars}`).join();
  const colours = theme.value;
  const data = [times.map((ms) => ms / 1000), ...series.map(({ values }) => values)];
  const enough = times.length > 1;
  useEffect(() => {
    if (!enough) return undefined;
    const line = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const scales = [...new Set(series.map(({ scale = "y" }) => scale))];
    const format = (scale) => series.find((one) => (one.scale ?? "y") === scale).format ?? compact;
    const options = {
      width: box.current.clientWidth || 300,
      height,
      padding: [8, 26, 0, 0],
      legend: { live: true },
      cursor: { drag: { x: Boolean(select.current), y: false, setScale: false }, points: { size: 6 } },
      select: { show: Boolean(select.current) },
      scales: Object.fromEntries([...(series[0].bars ? [["x", { range: past }]] : []), ...scales.map((name) => [name, { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] }])]),
      axes: [
        { ...line, font: "11px system-ui", space: 80, size: 42, values: CLOCK },
        ...scales.map((scale, i) => ({
          ...line,
          scale,
          side: i ? 1 : 3,
          grid: i ? { show: false } : line.grid,
          font: "11px system-ui",
          size: 58,
          space: 28,
          values: (_, ticks) => ticks.map((value) => format(scale)(value)),
        })),
      ],
      series: [
        { label: "Time", value: (_, at) => (at === null || at === undefined ? "–" : time(at * 1000, { millis: false })) },
        ...series.map(({ label: name, scale = "y", bars, format: words = compact }, i) => ({
          label: name,
          scale,
          stroke: colour(`--series-${i + 1}`),
          fill: bars || i === 0 ? colour(`--series-${i + 1}`) + (bars ? "99" : "1c") : undefined,
          width: 1.5,
          points: { show: false },
          paths: bars ? uPlot.paths.bars({ size: [0.85, 40], align: 1 }) : undefined,
          value: (_, value) => (value === null || value === undefined ? "–" : words(value)),
        })),
      ],
      hooks: {
        setSelect: [
          (chart) => {
            const { left, width } = chart.select;
            if (width > 4) select.current?.(chart.posToVal(left, "x") * 1000, chart.posToVal(left + width, "x") * 1000);
            chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          },
        ],
      },
    };
    const chart = new uPlot(options, data, box.current);
    plot.current = chart;
    const sizes = new ResizeObserver(() => chart.setSize({ width: box.current.clientWidth, height }));
    sizes.observe(box.current);
    return () => {
      sizes.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [shape, height, colours, enough]);
  useEffect(() => {
    plot.current?.setData(data);
  });
  if (!enough) return html`<div class="empty">${empty}</div>`;
  const latest = series.map(({ label: name, values, format = compact }) => `${name} ${format(values.at(-1))}`).join(", ");
  return html`<figure class="chart ${series[0].bars ? "bars" : ""}" role="img" aria-label=${`${label}: ${latest}`} ref=${box}></figure>`;
}

const TRAIL = 120;

/** The values that `value` had at the times `at` while the page was open, for a sparkline. */
export function useTrail(value, at) {
  const trail = useRef({ at: null, values: [] });
  if (at !== trail.current.at && value !== null && value !== undefined) {
    trail.current = { at, values: [...trail.current.values, value].slice(-TRAIL) };
  }
  return trail.current.values;
}

/** A line without axes, as wide as its place. */
export function Spark({ values, kind = "", label }) {
  const paths = useMemo(() => {
    const points = values.map((value) => value ?? 0);
    if (points.length < 2 || !points.some(Boolean)) return null;
    const top = Math.max(...points, 1e-9);
    const step = 100 / (points.length - 1);
    const line = points.map((value, i) => `${i ? "L" : "M"}${(i * step).toFixed(2)} ${(25 - (value / top) * 23).toFixed(2)}`).join("");
    return { line, area: `${line}L100 26L0 26Z` };
  }, [values]);
  if (!paths) return null;
  return html`<svg class="spark ${kind}" viewBox="0 0 100 26" preserveAspectRatio="none" role="img" aria-label=${label ?? "Course"}>
    <path class="area" d=${paths.area} /><path class="line" d=${paths.line} />
  </svg>`;
}
