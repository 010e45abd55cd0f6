// The history of checkpoints and savepoints.
import { confirmed, savepointTaken } from "./actions.js";
import { plot } from "./charts.js";
import { h, pager, show, table } from "./dom.js";
import { ENDED, clock, millis, moment, size, words } from "./format.js";

const ROWS = 50;
const POINTS = 60;
const PAGE = 100; // of the server

export function checkpointsPart(place, model) {
  const seen = new Map(); // by id: retained ones, and the last of those that this page saw
  const plots = h("div", { class: "tiles" });
  const parts = h("section", { class: "card", hidden: true });
  const list = h("section", { class: "card" }, h("p", { class: "dim" }, "waiting for the first answer"));
  let asked = 0;
  let retained = new Set();
  let chosen = 0; // whose subtasks are shown
  show(place, plots, parts, list);

  async function load() {
    asked = performance.now();
    try {
      const found = await model.connection.get(`${model.path}/checkpoints`);
      retained = new Set(found.map((each) => each.id));
      for (const each of found) seen.set(each.id, each);
      for (const id of [...seen.keys()].sort((left, right) => left - right).slice(0, -POINTS)) if (!retained.has(id)) seen.delete(id);
      draw();
    } catch (error) {
      show(list, h("p", { class: "notice" }, error.message));
    }
  }

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
      pager(["Slower", "Faster"], found.offset, PAGE, found.total, (offset) => choose(found.id, offset)),
      h("button", { class: "plain", id: "close-parts", onclick: () => choose(found.id) }, "Close")];
  }

  async function savepoint() {
    await savepointTaken(model);
    load();
  }

  async function dispose(found) {
    const command = `lockgate savepoint dispose ${model.key} ${found.id}`;
    await confirmed(`Delete savepoint ${found.id} for good?`, "No job can start from it any more.", command, "Delete", true,
      () => model.connection.post(`${model.path}/savepoints/${found.id}/dispose`));
    load();
  }

  function draw() {
    const all = [...seen.values()].sort((left, right) => left.id - right.id);
    const points = (value) => all.slice(-POINTS).map((each) => [`${each.id}`, value(each)]);
    show(plots, plot("Size", points((each) => each.size_bytes), size), plot("Duration", points((each) => each.duration_ms), millis),
      plot("Longest alignment", points((each) => each.longest_alignment_ms), millis),
      plot("Longest synchronous part", points((each) => each.longest_sync_ms), (ms) => `${ms.toFixed(1)} ms`));
    const may = model.connection.may("operate");
    const rows = all.reverse().slice(0, ROWS).map((each) => [
      h("button", { class: "plain link", id: `parts-${each.id}`, "aria-expanded": String(each.id === chosen), "aria-label": `${each.id}: its subtasks`,
        onclick: () => choose(each.id) }, String(each.id)), `${words(each.kind)}${each.unaligned ? ", unaligned" : ""}`, each.state,
      h("span", { title: moment(each.triggered_unix_ms) }, clock(each.triggered_unix_ms * 1000).slice(0, 8)),
      millis(each.duration_ms), size(each.size_bytes), each.written_bytes ? size(each.written_bytes) : "-",
      `${each.longest_alignment_ms} ms`, `${each.longest_sync_ms.toFixed(1)} ms`,
      !retained.has(each.id) ? "subsumed" : each.kind !== "savepoint" ? "retained"
        : h("button", { class: "danger", id: `dispose-${each.id}`, disabled: !may, onclick: () => dispose(each) }, "Dispose"),
    ]);
    const savepoints = all.filter((each) => each.kind === "savepoint" && retained.has(each.id));
    const take = h("button", { id: "take-savepoint", disabled: !may || ENDED.includes(model.status?.state), onclick: savepoint }, "Take a savepoint ...");
    show(list, h("h2", {}, "Checkpoints and savepoints"), h("p", {}, take), table("Checkpoints and savepoints", [["Id", "right"], ["Kind", ""], ["State", "hide"], ["UTC", ""],
      ["Took", "right"], ["Size", "right"], ["Written", "right hide"], ["Alignment", "right hide"], ["Sync", "right hide"], ["", ""]],
    rows, "No completed checkpoint yet."),
    savepoints.length ? [h("h2", {}, "Start a job from a savepoint"), savepoints.map((each) => h("p", { class: "small" }, `${each.id}: `, h("code", {}, each.pointer)))] : null);
  }

  load();
  return {
    status() {
      const last = model.status.last_checkpoint;
      if (last && !seen.has(last.id)) {
        seen.set(last.id, last);
        retained.add(last.id);
        draw();
      }
      if (performance.now() - asked > 5000) load();
    },
  };
}
