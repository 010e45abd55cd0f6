// The execution graph, and the subtasks of the vertex that was chosen.
import { h, pager, s, show, table } from "./dom.js";
import { backlog, brief, count, lag, percent, rate, size, utc, words } from "./format.js";

const PAGE = 100; // of the server

export function graphPart(place, model) {
  const drawing = h("div", { class: "card" }, h("p", { class: "dim" }, "drawing"));
  const vertices = h("section", { class: "card" });
  const operators = h("section", { class: "card" });
  const subtasks = h("section", { class: "card" });
  show(place, drawing, vertices, operators, subtasks);
  let graph = null;
  let shape = "";
  let chosen = "";
  let offset = 0;
  let asked = 0;

  async function load() {
    const wanted = model.status.vertices.map((vertex) => vertex.id).join();
    if (wanted === shape) return;
    shape = wanted;
    try {
      graph = await model.connection.get(`${model.path}/graph`);
      draw();
    } catch (error) {
      shape = "";
      show(drawing, h("p", { class: "notice" }, error.message));
    }
  }

  async function list() {
    asked = performance.now();
    try {
      const found = await model.connection.get(`${model.path}/subtasks?vertex=${encodeURIComponent(chosen)}&offset=${offset}`);
      show(subtasks, subtaskTable(found));
    } catch (error) {
      show(subtasks, h("p", { class: "notice" }, error.message));
    }
  }

  function subtaskTable(found) {
    const rows = found.subtasks.map((each) => [each.vertex, String(each.subtask), each.task_manager || "-", each.state || "-",
      percent(each.busy), percent(each.backpressured), percent(each.idle), utc(each.watermark_unix_ms), lag(each.lag_ms),
      backlog(each) ?? "-"]);
    const turn = (to) => { offset = to; list(); };
    return [h("h2", {}, chosen ? `Subtasks of ${chosen}` : "Subtasks"),
      table("Subtasks", [["Vertex", "hide"], ["Subtask", "right"], ["Task manager", ""], ["State", "hide"], ["Busy", "right"], ["Back-pressured", "right"],
        ["Idle", "right hide"], ["Watermark, UTC", "hide nowrap"], ["Lag", "right"], ["Backlog", "right hide"]], rows, "It has none now."),
      pager(["Before", "Next"], offset, PAGE, found.total, turn)];
  }

  function choose(id) {
    chosen = chosen === id ? "" : id;
    offset = 0;
    draw();
    list();
  }

  function draw() {
    if (graph) show(drawing, picture(model, graph, chosen, choose));
    show(vertices, h("h2", {}, "Vertices"), table("Vertices", [["Vertex", ""], ["Busy", "right hide"], ["Back-pressured", "right hide"],
      ["Watermark, UTC", "nowrap"], ["Lag", "right"], ["Backlog", "right hide"]],
    model.status.vertices.map((each) => [each.id, percent(each.busy), percent(each.backpressured), utc(each.watermark_unix_ms), lag(each.lag_ms), backlog(each) ?? "-"]),
    "None is known."));
    const rows = model.status.operators.map((each) => [each.name || each.id, each.vertex, count(each.records_in), count(each.records_out),
      ["late", "malformed", "ahead", "failed"].filter((what) => each[`records_${what}`])
        .map((what) => `${count(each[`records_${what}`])} ${what}`).join(", ") || "-"]);
    show(operators, h("h2", {}, "Operators"), table("Operators",
      [["Operator", ""], ["Vertex", "hide"], ["Records in", "right"], ["Records out", "right"], ["Not processed", "hide"]], rows, "None is known."));
  }

  list();
  return {
    status() {
      load();
      draw();
      if (performance.now() - asked > 3000) list();
    },
  };
}

function picture(model, graph, chosen, choose) {
  const places = new Map(graph.vertices.map((vertex) => [vertex.id, vertex]));
  const { vertex_width: wide, vertex_height: high } = graph;
  const marker = s("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto-start-reverse" },
    s("path", { class: "tip", d: "M0 0L8 4L0 8z" }));
  const edges = graph.edges.filter((edge) => places.has(edge.source) && places.has(edge.target))
    .map((edge) => line(edge, places.get(edge.source), places.get(edge.target), wide, high));
  const boxes = model.status.vertices.filter((vertex) => places.has(vertex.id)).map((vertex) =>
    box(model, vertex, places.get(vertex.id), wide, high, vertex.id === chosen, choose));
  return [h("h2", {}, "Execution graph"),
    s("svg", { viewBox: `0 0 ${graph.width} ${graph.height}`, width: graph.width, height: graph.height, role: "group",
      "aria-label": "Execution graph; choose a vertex for its subtasks" }, s("defs", {}, marker), edges, boxes),
    h("p", { class: "small" }, h("span", { class: "key busy" }), "busy ", h("span", { class: "key backpressured" }), "back-pressured ",
      h("span", { class: "key idle" }), "idle, of the last seconds, on average over the subtasks")];
}

function line(edge, from, to, wide, high) {
  const kind = `${edge.partitioning}${edge.side_output ? `, ${edge.side_output}` : ""}`;
  const back = to.x <= from.x;
  const [x1, y1] = [from.x + wide, from.y + high / 2];
  const [x2, y2] = [to.x, to.y + high / 2];
  const bend = Math.max(30, (x2 - x1) / 2);
  const path = back ? `M${from.x + wide / 2} ${from.y}C${from.x + wide / 2} ${from.y - 40} ${to.x + wide / 2} ${to.y - 40} ${to.x + wide / 2} ${to.y}`
    : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  return s("g", {}, s("path", { class: `edge${edge.side_output || back ? " side" : ""}`, d: path, "marker-end": "url(#tip)" }, s("title", {}, kind)),
    back ? null : s("text", { class: "dim", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 7, "text-anchor": "middle" }, kind.slice(0, 12)));
}

function box(model, vertex, place, wide, high, isChosen, choose) {
  const states = Object.entries(vertex.states);
  const running = vertex.states.RUNNING ?? 0;
  const look = !vertex.parallelism ? "" : states.some(([state]) => state === "FAILED") ? "bad" : running === vertex.parallelism ? "good" : "wait";
  const name = vertex.operators.join(", ") || vertex.id;
  const way = vertex.records_in ? "in" : "out";
  const flow = `${rate(vertex.parallelism ? model.rates.now(`${way} ${vertex.id}`) : null)} ${way}`;
  const left = backlog(vertex);
  const said = states.map(([state, n]) => `${n} ${words(state)}`).join(", ") || "not running";
  const behind = vertex.lag_ms == null ? "" : `, lag ${lag(vertex.lag_ms)}`;
  const load = vertex.busy == null ? "load not known" : vertex.backpressured >= 0.005
    ? `${percent(vertex.busy)} busy, ${percent(vertex.backpressured)} waits${behind}` : `${percent(vertex.busy)} busy${behind}`;
  const press = (event) => {
    if (event.type === "click" || event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(vertex.id);
    }
  };
  return s("g", { role: "button", tabindex: 0, id: `vertex-${vertex.id}`, class: isChosen ? "chosen" : "", transform: `translate(${place.x} ${place.y})`,
    "aria-label": `${vertex.id}: ${name}, ${said}, ${flow}, ${load}${left ? `, backlog ${left}` : ""}`, "aria-pressed": String(isChosen), onclick: press, onkeydown: press },
    s("rect", { class: `box ${look}`, width: wide, height: high, rx: 8 }), heat(vertex, wide, high),
    s("text", { x: 12, y: 21, "font-weight": 650 }, short(vertex.id, 24)), s("text", { class: "dim", x: 12, y: 37 }, short(name, 30)),
    s("text", { x: 12, y: 54 }, flow + unread(vertex)), s("text", { class: "dim", x: 12, y: 69 }, short(said, 30)),
    s("text", { x: 12, y: 86, class: "load" }, load), shares(vertex, wide - 24),
    s("title", {}, `${name}${left ? `\nbacklog ${left}` : ""}`));
}

// In few characters; the whole is in the title.
function unread({ backlog_records: records, backlog_bytes: bytes }) {
  return records != null ? `, ${brief(records)} left` : bytes != null ? `, ${size(bytes)} left` : "";
}

// The colour of a vertex: what it does most, waiting for others or working.
function heat(vertex, wide, high) {
  if (vertex.busy == null) return null;
  const [kind, share] = vertex.backpressured > vertex.busy ? ["backpressured", vertex.backpressured] : ["busy", vertex.busy];
  return s("rect", { class: `heat ${kind}`, width: wide, height: high, rx: 8, "fill-opacity": (share * 0.3).toFixed(3) });
}

function shares(vertex, wide) {
  if (vertex.busy == null) return null;
  let x = 12;
  return ["busy", "backpressured", "idle"].map((kind) => {
    const part = s("rect", { class: `heat ${kind}`, x, y: 95, width: (vertex[kind] * wide).toFixed(1), height: 9 }, s("title", {}, `${kind} ${percent(vertex[kind])}`));
    x += vertex[kind] * wide;
    return part;
  });
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
