// One pipeline: its graph, and for each flow batch, phases, watermark, state, quality, last error.
import { html, useState } from "../html.js";
import { post, useData, useLive } from "../api.js";
import { Graph } from "../graph.js";
import { bytes, compact, count, duration, rate, shell } from "../format.js";
import { Action, ActionDialog, Ago, Badge, Command, Dialog, Facts, Field, Figures, Loaded, Page, Panel, STAY, Select, State, Time, can } from "../parts.js";
import { address, path, place, withQuery } from "../router.js";

export default function Pipeline({ pipeline }) {
  const found = useData(path`/api/pipelines/${pipeline}`, { every: 5 });
  const live = useLive(path`/api/live/pipelines/${pipeline}`);
  const [asking, setAsking] = useState(null);
  const head = { ...found.data, ...live.head };
  const flows = live.loading || !live.list.length ? (found.data?.flows ?? []) : live.list;
  const chosen = place.value.query.get("flow");
  const graph = head.graph;
  const failed = new Set(flows.filter(({ error, state }) => error && state !== "running").map(({ flow }) => `flow:${flow}`));
  const notes = Object.fromEntries(flows.map((flow) => [`flow:${flow.flow}`, flow.state === "running" ? rate(flow.rows_per_s, " rows/s") : (flow.state ?? "")]));
  const linked = graph && { ...graph, nodes: Object.fromEntries(Object.entries(graph.nodes).map(([id, node]) => [id, node.kind === "flow" ? { ...node, href: withQuery({ flow: node.name }) } : node])) };
  const sum = (name) => flows.reduce((total, flow) => total + (flow[name] ?? 0), 0);
  const runs = flows.some(({ state }) => state === "running" || state === "starting");
  const here = Boolean(head.file_here);
  const driver = useData(here && can("admin") ? path`/api/pipelines/${pipeline}/driver` : null, { every: 5 }).data?.driver;
  const ask = (what) => () => setAsking(what);
  return html`<${Page} title=${pipeline} badge=${html`<${State} state=${head.state ?? flows[0]?.state} />`}
    actions=${html`<a class="button" href=${address("/trace", { pipeline })}>Where is my record</a>
      <${Action} needs="admin" disabled=${!runs} onClick=${ask("stop")}>Stop…<//>
      <${Action} needs="admin" disabled=${runs} onClick=${ask("run")}>Run again…<//>
      <${Action} needs="admin" disabled=${runs} onClick=${ask("reset")}>Reset…<//>`}>
    <${Loaded} of=${found}>${(data) => html`
      <${Figures} items=${[
        { label: "Flows", value: count(flows.length), note: failed.size ? `${failed.size} failed` : "" },
        { label: "Rows", value: rate(sum("rows_per_s")) },
        { label: "Lag", value: compact(sum("lag")), note: "records not processed yet" },
        { label: "Dead letters", value: count(data.dead_letters?.length ?? 0), note: data.dead_letters?.join(", ") || "no topic for them", href: "/dead-letters" },
        { label: "Last heard", value: html`<${Ago} ms=${Math.max(...flows.map(({ heard_ms: heard }) => heard ?? 0), head.heard_ms ?? 0) || null} />`, note: head.host ?? "" },
      ]} />
      ${linked && html`<${Panel} title="Graph" flush><${Graph} graph=${linked} notes=${notes} failed=${failed} selected=${chosen && `flow:${chosen}`} label=${`Graph of ${pipeline}`} /><//>`}
      <div class="stack">
        ${flows.map((flow) => html`<${Flow} key=${flow.flow} flow=${flow} chosen=${flow.flow === chosen} />`)}
      </div>
      ${driver && !runs && html`<${Panel} title="The driver that this console started">
        <p>${driver.exit_code === null ? "It is starting" : `It ended with exit code ${driver.exit_code}`}, process ${driver.pid}; its output is in <code class="wrap">${driver.log}</code>:</p>
        <pre class="text-view" tabindex="0" aria-label="The end of its output">${driver.output}</pre>
      <//>`}
      ${asking && html`<${Asking} what=${asking} pipeline=${pipeline} data=${data} here=${here} flows=${flows} onClose=${ask(null)} />`}
    `}<//>
  <//>`;
}

function Asking({ what, pipeline, data, here, flows, onClose }) {
  const [to, setTo] = useState("");
  const [steps, setSteps] = useState(null);
  const at = path`/api/pipelines/${pipeline}/` + what;
  const command = data.commands[what];
  if (what === "stop") {
    return html`<${ActionDialog} title=${`Stop ${pipeline}`} verb="Stop" command=${command} run=${() => post(at)} done=${`${pipeline} is asked to stop`} onClose=${onClose}>
      <p>Its driver on ${data.published?.host ?? "its machine"} lets the running batch finish and ends. Run again, it goes on where it stopped: nothing is lost or written twice.</p>
    <//>`;
  }
  if (!here) {
    return html`<${Dialog} title=${`${what === "run" ? "Run" : "Reset"} ${pipeline}`} onClose=${onClose}>
      <p>This console was not given the file of the pipeline. Start it with <code>--pipeline FILE</code> where the file is, or run there:</p>
      <${Command} text=${command} />
    <//>`;
  }
  if (what === "run") {
    return html`<${ActionDialog} title=${`Run ${pipeline} again`} verb="Run" command=${command} run=${() => post(at)} done=${`${pipeline} is starting`} onClose=${onClose}>
      <p>It runs on the console's machine, as a process of its own, and goes on where it stopped.</p>
    <//>`;
  }
  const body = (execute) => ({ flows: [], to: to || null, execute });
  return html`<${ActionDialog} title=${`Reset ${pipeline}`} verb=${steps ? "Remove the checkpoints" : "Show what would be removed"} danger=${Boolean(steps)} confirm=${steps ? pipeline : undefined}
    command=${`${command}${to ? ` --to ${to}` : ""}`}
    run=${async () => {
      if (steps) return post(at, body(true));
      setSteps((await post(at, body(false))).steps);
      return STAY;
    }}
    done=${`${pipeline} begins anew with its next run`} onClose=${onClose}>
    <p>The next run starts anew. What ${flows.length === 1 ? "its flow has" : "its flows have"} written stays, and may be written a second time.</p>
    <${Field} label="The next run starts at"><${Select} label="The next run starts at" value=${to} options=${[["", "where its sources say"], ["earliest", "the beginning of its topics"], ["latest", "the end of its topics"]]} onChange=${(value) => (setTo(value), setSteps(null))} /><//>
    ${steps && html`<ul aria-label="Steps">${steps.map((step) => html`<li key=${step} class="wrap">${step}</li>`)}</ul>`}
  <//>`;
}

function Flow({ flow, chosen }) {
  const phases = flow.phases ?? [];
  const whole = phases.reduce((sum, { ms }) => sum + ms, 0);
  const { error } = flow;
  return html`<section class="panel flow-panel ${chosen ? "chosen" : ""}" aria-label=${`Flow ${flow.flow}`}>
    <header><h2>${flow.flow}</h2><${State} state=${flow.state} /><div class="end muted small">heard <${Ago} ms=${flow.heard_ms} /></div></header>
    <div class="body stack">
      ${error && html`<div class="error-box" role="alert"><div class="wrap">${error.message ?? String(error)}</div>${error.file && html`<code>${error.file}${error.line ? `:${error.line}` : ""}</code>`}${error.hint && html`<div class="hint small">${error.hint}</div>`}</div>`}
      <div class="flow-facts">
        <${Facts} items=${[
          ["Batch", html`${count(flow.batch)}${flow.batch_ms ? html` <span class="muted">in ${duration(flow.batch_ms / 1000)}</span>` : ""}${flow.rows_out !== undefined && flow.rows_out !== null ? html` <span class="muted">${count(flow.rows_out)} rows out</span>` : ""}`],
          ["Rows", rate(flow.rows_per_s)],
          ["Lag", count(flow.lag)],
          ["Late rows", count(flow.late_rows)],
          ["Dead letters", html`<span class=${flow.dead_letters ? "warn strong" : ""}>${count(flow.dead_letters)}</span>`],
          ["Ran again", count(flow.run_again)],
        ]} />
        <${Facts} items=${[
          ["Declared at", flow.place ? html`<code class="wrap">${flow.place}</code>` : null],
          ["Group", flow.group ? html`<a href=${path`/groups/${flow.group}`}>${flow.group}</a>` : null],
          ["Watermark", html`<${Time} ms=${flow.watermark_ms} />`],
          ["Behind it", duration(flow.watermark_lag_s)],
          ["State", flow.state_rows === null || flow.state_rows === undefined ? "none" : `${count(flow.state_rows)} rows, ${bytes(flow.state_bytes)}`],
          ["Checkpoint", flow.checkpoint_age_s === null || flow.checkpoint_age_s === undefined ? "–" : `${duration(flow.checkpoint_age_s)} old`],
        ]} />
      </div>
      ${phases.length > 0 && html`<div class="stack tight">
        <div class="small muted">Where the time of the last batch went: ${duration(whole / 1000)}</div>
        <div class="phases" role="img" aria-label=${phases.map(({ name, ms }) => `${name} ${ms} ms`).join(", ")}>
          ${phases.filter(({ ms }) => ms > 0).map(({ name, ms }, i) => html`<span key=${name} class="phase phase-${i % 6}" style=${{ flexGrow: ms }} title=${`${name}: ${ms} ms`}></span>`)}
        </div>
        <div class="row small">${phases.map(({ name, ms }, i) => html`<span key=${name} class="row phase-key"><i class="phase-${i % 6}"></i>${name} <span class="muted">${count(ms)} ms</span></span>`)}</div>
      </div>`}
      ${flow.quality?.length > 0 && html`<ul class="row" aria-label="Expectations">${flow.quality.map(({ name, unmet }) => html`<li key=${name}><${Badge} kind=${unmet ? "warn" : "good"}>${name}: ${unmet ? `${count(unmet)} unmet` : "met"}<//></li>`)}</ul>`}
    </div>
  </section>`;
}
