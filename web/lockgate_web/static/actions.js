// What can be done with a job, each with the command that does the same.
import { h, show } from "./dom.js";
import { ENDED, size } from "./format.js";

// Asks before it acts; says what came of it in the same dialog.
export function confirmed(title, text, command, verb, isDanger, act) {
  return new Promise((done) => {
    const said = h("p", { role: "status" });
    const go = h("button", { class: isDanger ? "danger" : "", id: "confirm" }, verb);
    const leave = h("button", { class: "plain", id: "leave", onclick: () => dialog.close() }, "Leave it");
    const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), h("p", {}, text), commandLine(command), said, h("div", { class: "row" }, leave, go));
    go.addEventListener("click", async () => {
      go.disabled = true;
      said.className = "";
      said.textContent = "Working on it. You may close this page: the action continues.";
      try {
        said.textContent = result(await act());
      } catch (error) {
        said.className = "bad";
        said.textContent = error.message;
      }
      leave.textContent = "Close";
      leave.focus();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      done();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function result(answer) {
  if (answer?.pointer) return `Done: ${answer.kind} ${answer.id}, ${size(answer.size_bytes)}, at ${answer.pointer}`;
  return answer?.state ? `Done: the job is ${answer.state.toLowerCase().replaceAll("_", " ")}.` : "Done.";
}

function commandLine(command) {
  const code = h("code", {}, command);
  const said = h("span", { class: "small", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command); // there is no clipboard in a page that came without TLS from another machine
      said.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      said.textContent = "The browser did not allow it: the command is selected, copy it with the keyboard";
    }
  };
  return h("div", { class: "command" }, code, h("button", { class: "plain", type: "button", "aria-label": `Copy the command ${command}`, onclick: copy }, "Copy"), said);
}

const SAVEPOINT = "Take a snapshot that stays until it is disposed of. The job runs on.";
const random = () => crypto.getRandomValues(new Uint32Array(4)).join("-");
const takeSavepoint = ({ connection, path }) => connection.post(`${path}/savepoint`, { request_id: random() });

export const savepointTaken = (model) =>
  confirmed(`Savepoint: ${model.key}`, SAVEPOINT, `lockgate savepoint ${model.key}`, "Take a savepoint", false, () => takeSavepoint(model));

export function actionsPart(place, model) {
  let drawn = "";
  const { key, path, connection } = model;

  function card(title, text, command, verb, isDanger, act, ...inputs) {
    const off = !connection.may("operate");
    const button = h("button", { class: isDanger ? "danger" : "", disabled: off,
      onclick: () => confirmed(`${title}: ${key}`, text, command(), `${verb}`, isDanger, act) }, `${verb} ...`);
    const line = h("div", {}, commandLine(command()));
    for (const input of inputs) input.addEventListener("input", () => show(line, commandLine(command())));
    return h("section", { class: "card" }, h("h2", {}, title), h("p", { class: "small" }, text), inputs, line, h("p", {}, button),
      off ? h("p", { class: "small dim" }, "This needs the role operate.") : null);
  }

  function draw() {
    const { status } = model;
    const vertices = status.vertices.filter((vertex) => vertex.parallelism);
    const shape = `${status.state} ${vertices.map((vertex) => `${vertex.id}=${vertex.parallelism}`)}`;
    if (shape === drawn) return;
    drawn = shape;
    if (ENDED.includes(status.state)) {
      show(place, h("p", { class: "card" }, "The job has ended: nothing can be done with it here. Its savepoints are under Checkpoints."));
      return;
    }
    const drain = h("input", { type: "checkbox", id: "drain" });
    const drainLine = h("label", {}, drain, " process first what sources have read (drain)");
    const numbers = vertices.map((vertex) => [vertex, h("input", { type: "number", min: 1, max: 32768, value: vertex.parallelism, id: `scale-${vertex.id}` })]);
    const wanted = () => numbers.filter(([vertex, input]) => Number(input.value) !== vertex.parallelism);
    const scaled = () => Object.fromEntries((wanted().length ? wanted() : numbers.slice(0, 1)).map(([vertex, input]) => [vertex.id, Number(input.value)]));
    show(place, h("div", { class: "actions" },
      status.state === "HELD_BACK" ? card("Release", "Retry the job, which is held back because leaders died while recovering it.",
        () => `lockgate release ${key}`, "Release", false, () => connection.post(`${path}/release`)) : null,
      card("Savepoint", SAVEPOINT, () => `lockgate savepoint ${key}`, "Take a savepoint", false, () => takeSavepoint(model)),
      card("Stop", "End the job with a savepoint. A new job that starts from it continues without a gap.",
        () => `lockgate stop ${key}${drain.checked ? " --drain" : ""}`, "Stop", true, () => connection.post(`${path}/stop`, { drain: drain.checked }), drainLine),
      card("Cancel", "End the job without a savepoint. Its committed output stays; work since its last checkpoint is dropped.",
        () => `lockgate cancel ${key}`, "Cancel the job", true, () => connection.post(`${path}/cancel`)),
      numbers.length ? card("Rescale", "Change the number of subtasks: a snapshot is taken, and the job restarts from it.",
        () => `lockgate rescale ${key} ${Object.entries(scaled()).map(([id, n]) => `${id}=${n}`).join(" ")}`, "Rescale", false,
        () => connection.post(`${path}/rescale`, { parallelism: scaled() }),
        ...numbers.map(([vertex, input]) => h("label", {}, `${vertex.id} `, input))) : null));
  }

  return { status: draw };
}
