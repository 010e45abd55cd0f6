// The history of checkpoints and savepoints.
import { confirmed, savepointTaken } from "./actions.js";
import { plot } from "./charts.js";
import { h, pager, show, table } from "./dom.js";
import { ENDED, clock, millis, moment, size, words } from "./format.js";

const ROWS = 50;
const POINTS = 120;
const PAGE = 100; // of the server
const CAPTION = "Checkpoints and savepoints";

export function checkpointsPart(place, model) {
  const log = model.checkpoints;
  const plots = h("div", { class: "tiles" });
  const parts = h("section", { class: "card", hidden: true });
  const list = h("section", { class: "card" }, h("p", { class: "dim" }, "waiting for the first answer"));
  let chosen = 0; // whose subtasks are shown
  let from = 0; // the first row
  show(place, plots, parts, list);

  async function choose(id, offset = 0) {
    chosen = id === chosen && !offset ? 0 : id;
    parts.hidden = !chosen;
    draw();
    if (!chosen) return;
    show(parts, h("h2", {}, `Subtasks of checkpoint ${id}`), h("p", { class: "dim" }, "waiting for the answer"));
    try {
      const found = await model.connection.get(`${model.path}/checkpoints/${id}?offset=${offset}`);
      if (found.id === chosen) show(parts, partTable(found));
    } catch (error) {
      show(parts, h("p", { class: "notice" }, error.message));
    }
  }

  function partTable(found) {
    const rows = found.subtasks.map((each) => [each.vertex, String(each.subtask), each.task_manager || "-", millis(each.duration_ms),
      size(each.size_bytes), size(each.written_bytes), `${each.alignment_ms} ms`, `${each.sync_ms.toFixed(1)} ms`, `${each.upload_ms} ms`]);
    const columns = [["Vertex", ""], ["Subtask", "right"], ["Task manager", "hide"], ["Took", "right"], ["Size", "right"], ["Written", "right hide"],
      ["Alignment", "right hide"], ["Sync", "right hide"], ["Upload", "right hide"]];
    return [h("h2", {}, `Subtasks of checkpoint ${found.id}`), h("p", { class: "small dim" }, "From the trigger to the acknowledgement, the slowest first."),
      table(`Subtasks of checkpoint ${found.id}`, columns, rows, "Not known: the leader keeps the subtasks of the newest 20 checkpoints that it has taken itself, while the job runs."),
      pager(["Slower", "Faster"], found.offset, PAGE, found.total, (offset) => choose(found.id, offset), "parts-"),
      h("button", { class: "plain", id: "close-parts", onclick: () => choose(found.id) }, "Close")];
  }

  async function savepoint() {
    await savepointTaken(model);
    log.load();
  }

  async function dispose(found) {
    const command = `lockgate savepoint dispose ${model.key} ${found.id}`;
    await confirmed(`Delete savepoint ${found.id} for good?`, "No job can start from it any more.", command, "Delete", true,
      () => model.connection.post(`${model.path}/savepoints/${found.id}/dispose`));
    log.load();
  }

  const id = (each) => (each.outcome === "aborted" ? String(each.id)
    : h("button", { class: "plain link", id: `parts-${each.id}`, "aria-expanded": String(each.id === chosen), "aria-label": `${each.id}: its subtasks`,
      onclick: () => choose(each.id) }, String(each.id)));

  function row(each, may) {
    const [look, outcome] = outcomeOf(each);
    return [id(each), `${words(each.kind)}${each.unaligned ? ", unaligned" : ""}`,
      [h("span", { class: `state ${look}` }, outcome), each.text ? h("div", { class: "small dim reason" }, each.text.slice(0, 400)) : null],
      h("span", { title: moment(each.triggered_unix_ms) }, clock(each.triggered_unix_ms * 1000).replace(/\..*/, "")),
      millis(each.duration_ms), size(each.size_bytes), each.written_bytes ? size(each.written_bytes) : "-",
      `${each.longest_alignment_ms} ms`, `${each.longest_sync_ms.toFixed(1)} ms`, each.subtasks ? `${each.acknowledged} of ${each.subtasks}` : "-", each.state || "-",
      each.kind === "savepoint" && each.retained
        ? h("button", { class: "danger", id: `dispose-${each.id}`, disabled: !may, onclick: () => dispose(each) }, "Dispose") : ""];
  }

  function draw() {
    const all = log.all();
    if (!all.length && log.trouble) return show(list, h("p", { class: "notice" }, log.trouble));
    const points = (value) => all.slice(-POINTS).map((each) => [`${each.id}`, value(each), each.outcome === "aborted" ? "aborted" : ""]);
    show(plots, plot("Size", points((each) => each.size_bytes), size), plot("Duration", points((each) => each.duration_ms), millis),
      plot("Longest alignment", points((each) => each.longest_alignment_ms), millis),
      plot("Longest synchronous part", points((each) => each.longest_sync_ms), (ms) => `${ms.toFixed(1)} ms`));
    const may = model.connection.may("operate");
    all.reverse();
    const rows = all.slice(from, from + ROWS).map((each) => row(each, may));
    const savepoints = all.filter((each) => each.kind === "savepoint" && each.retained);
    const take = h("button", { id: "take-savepoint", disabled: !may || hasEnded(), onclick: savepoint }, "Take a savepoint ...");
    const columns = [["Id", "right"], ["Kind", "hide"], ["Outcome", ""], ["UTC", ""], ["Took", "right"], ["Size", "right"], ["Written", "right hide"],
      ["Alignment", "right hide"], ["Sync", "right hide"], ["Acknowledged", "right hide"], ["State", "hide"], ["", ""]];
    show(list, h("h2", {}, CAPTION), h("p", {}, take), table(CAPTION, columns, rows, "No checkpoint yet."),
      pager(["Newer", "Older"], from, ROWS, all.length, (to) => { from = to; draw(); }, "list-"),
      h("p", { class: "small dim" }, "As far as the present leader, or this page, has seen it."),
      savepoints.length ? [h("h2", {}, "Start a job from a savepoint"), savepoints.map((each) => h("p", { class: "small" }, `${each.id}: `, h("code", {}, each.pointer)))] : null);
  }

  const hasEnded = () => ENDED.includes(model.status?.state);
  let wasOver = hasEnded();
  if (log.rows.size) draw(); // another part was shown meanwhile
  log.show(draw);
  return {
    status() {
      if (wasOver === hasEnded()) return;
      wasOver = hasEnded();
      log.load();
    },
  };
}

// A look, and a word.
function outcomeOf(each) {
  if (each.outcome === "aborted") return ["bad", "aborted"];
  if (each.retained ?? true) return ["good", each.retained ? "retained" : "completed"]; // null: not known yet
  return ["off", each.kind === "savepoint" ? "disposed of" : "subsumed"];
}
