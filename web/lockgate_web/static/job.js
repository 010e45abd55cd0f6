// One job: its head, and the part that the address names.
import { actionsPart } from "./actions.js";
import { Rates, sparkline } from "./charts.js";
import { checkpointsPart } from "./checkpoints.js";
import { h, show, tile } from "./dom.js";
import { failoversPart } from "./failovers.js";
import { ENDED, ago, backlog, count, look, millis, moment, rate, size, words } from "./format.js";
import { graphPart } from "./graph.js";
import { CheckpointLog, EventLog } from "./history.js";

const RUN_MS = 3000; // between two questions whether the key of an ended job has a new run
const PARTS = { graph: ["Graph", graphPart], checkpoints: ["Checkpoints", checkpointsPart],
  failovers: ["Failovers", failoversPart], actions: ["Actions", actionsPart] };

// What the parts of the page share. on: called with each status, event and change of part.
export class JobModel {
  constructor(key, connection) {
    this.key = key;
    this.connection = connection;
    this.path = `/api/v1/jobs/${encodeURIComponent(key)}`;
    this.status = null;
    this.events = new EventLog();
    this.checkpoints = new CheckpointLog(() => connection.get(`${this.path}/checkpoints/history`));
    this.rates = new Rates();
  }

  take(status) {
    this.status = status;
    if (!ENDED.includes(status.state)) this.checkpoints.last(status.last_checkpoint);
    this.rates.add("", status.records_read ?? 0);
    for (const vertex of status.vertices) {
      this.rates.add(`in ${vertex.id}`, vertex.records_in);
      this.rates.add(`out ${vertex.id}`, vertex.records_out);
    }
  }

  // True for one that is new.
  hear(event) {
    const isNew = this.events.add(event);
    if (isNew) this.checkpoints.hear(event);
    return isNew;
  }
}

// onNewRun(): the key has another run, about which nothing on this page is true.
export function jobPage(place, connection, key, signal, onNewRun) {
  const model = new JobModel(key, connection);
  const head = h("div", {}, h("h1", {}, key), h("p", { class: "dim" }, "waiting for the first answer"));
  const trace = h("div", {});
  const tabs = h("nav", { class: "tabs", "aria-label": "Parts of the job's page" });
  const body = h("div", {});
  document.title = `${key} - Lockgate`;
  show(place, h("p", { class: "small" }, h("a", { href: "/" }, "All jobs")), head, trace, tabs, body);
  let part = null;
  let traced = "";
  const showTrace = () => { // anew only when it is another one: it may be open, and scrolled
    const text = model.status.failure?.traceback ?? "";
    if (text !== traced) show(trace, text ? traceback(text) : null);
    traced = text;
  };
  const choose = () => {
    const name = location.hash.slice(1) in PARTS ? location.hash.slice(1) : "graph";
    show(tabs, Object.entries(PARTS).map(([id, [text]]) =>
      h("a", { href: `#${id}`, id: `tab-${id}`, "aria-current": id === name ? "page" : null }, text)));
    show(body);
    model.checkpoints.show(null);
    part = PARTS[name][1](body, model);
    if (model.status) part.status?.();
  };
  window.addEventListener("hashchange", choose, { signal });
  const isOfAnotherRun = ({ run_id: run }) => Boolean(run && model.status?.run_id) && run !== model.status.run_id;
  let isPreceded = false;
  const precede = async () => { // what was read before this page was open; the page does without it
    isPreceded = true;
    const { unix_ms: times, records_read: totals } = await connection.get(`${model.path}/reads`).catch(() => ({ unix_ms: [], records_read: [] }));
    model.rates.precede("", times, totals);
    part.reads?.();
  };
  const streamed = connection.stream(`${model.path}/events`, {
    status: (status) => {
      if (signal.aborted) return;
      if (isOfAnotherRun(status)) return onNewRun();
      model.take(status);
      if (!isPreceded) precede();
      show(head, headOf(model));
      showTrace();
      part.status?.();
    },
    event: (event) => {
      if (!signal.aborted && model.hear(event)) part.event?.(event);
    },
    end: () => show(head, headOf(model)),
    failure: (value) => show(head, h("h1", {}, key), h("p", { class: "notice" }, value.error)),
    refused: (error) => show(place, h("h1", {}, key), h("p", { class: "notice error" }, error.message), h("a", { href: "/" }, "All jobs")),
  }, signal);
  choose();
  streamed.then(async () => { // the job has ended, and its key may be used again
    while (model.status && !await paused(RUN_MS, signal)) {
      const status = await connection.get(model.path).catch(() => null); // it may be forgotten meanwhile
      if (status && !signal.aborted && isOfAnotherRun(status)) return onNewRun();
    }
  });
}

// True when the page was left meanwhile.
const paused = (ms, signal) => new Promise((done) => { setTimeout(() => done(signal.aborted), ms); });

function headOf(model) {
  const { status, rates, key } = model;
  const last = status.last_checkpoint;
  return [
    h("h1", {}, key, " ", h("span", { class: `state ${look(status.state)}` }, words(status.state)), " ",
      status.name && status.name !== key ? h("span", { class: "dim small" }, status.name) : null),
    h("div", { class: "tiles" },
      tile("Records read", rate(ENDED.includes(status.state) ? null : rates.now("")), sparkline(rates.all(""), "records read in the last minute", 150), status.records_read === null ? null : `${count(status.records_read)} in all`,
        backlog(status) ? `backlog ${backlog(status)}` : null),
      tile("Attempt", String(status.attempt), `${status.restarts} ${status.restarts === 1 ? "restart" : "restarts"}`),
      tile("Last checkpoint", last ? `${last.id}` : "none yet",
        last ? `${size(last.size_bytes)} in ${millis(last.duration_ms)}, ${ago(last.triggered_unix_ms)}` : words(status.checkpoints.mode),
        `${status.checkpoints.completed} completed, ${status.checkpoints.aborted} aborted under this leader`),
      status.standby_copies ? standbyTile(status.standby_copies) : null,
      tile("Leader", `token ${status.token}`, status.leader),
      tile("Submitted", ago(status.submitted_unix_ms), moment(status.submitted_unix_ms), status.ended_unix_ms ? `ended ${moment(status.ended_unix_ms)}` : "")),
    status.message ? h("p", { class: "notice" }, status.message) : null,
    status.straggler ? h("p", { class: "notice" }, status.straggler) : null,
    status.error ? h("p", { class: "notice error" }, `${status.state === "FAILED" ? "Error" : "Last failure"}: ${status.error}`) : null,
  ];
}

// How many have every file of the newest checkpoint, and why others lack some.
function standbyTile({ wanted, complete, keepers }) {
  const lacking = keepers.find((keeper) => keeper.problem);
  return tile("Standby copies", `${complete} of ${wanted}`, "complete", lacking ? `${lacking.task_manager}: ${lacking.problem}` : null);
}

// Of the job's own code, as text.
function traceback(text) {
  return h("details", { class: "card", id: "traceback" }, h("summary", {}, "Traceback of the Python code"), h("pre", { tabindex: 0 }, text));
}
