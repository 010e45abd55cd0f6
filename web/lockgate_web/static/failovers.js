// Leaders, takeovers with their steps, as `lockgate drill` prints them, and everything that happened.
import { course, timeline } from "./charts.js";
import { h, show, table } from "./dom.js";
import { leadersTable } from "./leaders.js";
import { clock, rate, words } from "./format.js";

const LEADER = [["LEADER_LOSS_DETECTED", "loss detected"], ["LEADER_GRANTED", "leadership granted"], ["JOB_RECOVERED", "job recovered"],
  ["ATTEMPT_DEPLOYED", "deployed"], ["FIRST_RECORD", "first record"], ["CHECKPOINT_COMPLETED", "first checkpoint"]];
const CAUSES = ["ATTEMPT_FAILED", "TASK_MANAGER_LOST", "TASK_MANAGER_LEFT", "SUBTASK_MOVED"];
const QUIET = ["CHECKPOINT_COMPLETED"];
const ROWS = 200;
const MOST_SHOWN = 20; // takeovers, and of events that come often: aborted checkpoints have a page of their own
const DRAW_MS = 100;
const ASK_MS = 2000;
const [BEFORE, AFTER] = [15, 30]; // seconds around a failover

export function failoversPart(place, model) {
  const found = h("div", {});
  const leaders = h("section", { class: "card", hidden: true });
  const tell = h("section", { class: "card" }, h("h2", {}, "Story"),
    h("p", { class: "small dim" }, "What the state machines of every process did, each event below its cause."),
    h("button", { class: "plain", id: "story", onclick: story }, "Tell the story"));
  show(place, leaders, found, tell);

  async function story() {
    try {
      const { lines, remarks } = await model.connection.get(`${model.path}/story`);
      const text = lines.slice(-ROWS).map((line) => `${clock(line.unix_us)} ${line.id} ${line.process}${line.place ? ` ${line.place}` : ""}: `
        + `${line.event}${line.change ? ` [${line.change}]` : ""}, because of ${line.cause_id}`
        + line.effects.map((effect) => `\n    -> ${effect}`).join(""));
      show(tell, h("h2", {}, "Story"), h("pre", { tabindex: 0 }, [...text, ...remarks].join("\n")), h("button", { class: "plain", id: "story", onclick: story }, "Again"));
    } catch (error) {
      show(tell, h("p", { class: "notice" }, error.message));
    }
  }

  // Records read a second, as far as the leader or this page has seen it.
  function rates(at) {
    const points = model.rates.around("", at / 1000, BEFORE, AFTER);
    return points.length < 3 ? null : h("figure", {}, h("figcaption", { class: "small dim" }, "Records read a second around it"),
      course("records read a second around it", points, BEFORE, AFTER, rate));
  }

  let last = 0; // when the newest of them began, in microseconds

  function draw() {
    const events = model.events.all();
    const { takeovers, restarts } = timelines(events);
    last = Math.max(0, ...takeovers.concat(restarts).map(({ at }) => at));
    const aborted = events.filter(({ kind }) => kind === "CHECKPOINT_ABORTED");
    const left = new Set(aborted.slice(0, -MOST_SHOWN));
    const rows = events.filter((event) => !QUIET.includes(event.kind) && !left.has(event)).slice(-ROWS).reverse().map((event) =>
      [clock(event.unix_us), words(event.kind), String(event.attempt || "-"), String(event.token || "-"), event.text.slice(0, 400)]);
    show(found,
      h("section", { class: "card" }, h("h2", {}, "Takeovers"),
        takeovers.length ? takeovers.map(({ token, at, steps }) => h("div", {},
          h("p", {}, `Token ${token} at ${clock(at)} UTC`), timeline(`takeover with token ${token}`, steps), rates(at)))
          : h("p", { class: "dim" }, "The leader has not changed since it began with this job.")),
      restarts.length ? h("section", { class: "card" }, h("h2", {}, "Restarts"), restarts.map(({ at, text, steps }) => h("div", {},
        h("p", {}, `${clock(at)} UTC: ${text.slice(0, 300)}`), timeline("restart", steps), rates(at)))) : null,
      h("section", { class: "card" }, h("h2", {}, "Events"),
        table("Events", [["UTC", "nowrap"], ["What", ""], ["Attempt", "right hide"], ["Token", "right hide"], ["", "small dim"]], rows, "None yet.")));
  }

  let known = 0; // the newest token of the leaders that are shown
  let isAsking = false;

  // The cluster's, also those before the job; a new one is recorded about a second after it leads.
  async function askLeaders() {
    if (isAsking || !leaders.isConnected || model.status.token <= known) return;
    isAsking = true;
    const cluster = await model.connection.get("/api/v1/cluster").catch(() => ({ leaders: [] }));
    if (cluster.leaders?.length) {
      known = cluster.leaders.at(-1).token;
      leaders.hidden = false;
      show(leaders, h("h2", {}, "Leaders of the cluster"), leadersTable(cluster.leaders));
    }
    setTimeout(() => { isAsking = false; askLeaders(); }, ASK_MS);
  }

  let isDue = false;
  const drawSoon = () => { // many events come at once
    if (isDue) return;
    isDue = true;
    setTimeout(() => { isDue = false; draw(); }, DRAW_MS);
  };

  draw();
  let newest = 0; // token whose first checkpoint is shown
  return {
    reads: draw,
    status() {
      if (Date.now() - last / 1000 < (AFTER + 2) * 1000) draw();
      askLeaders();
    },
    event(event) {
      if (QUIET.includes(event.kind) && event.token === newest) return;
      if (QUIET.includes(event.kind)) newest = event.token;
      drawSoon();
    },
  };
}

// The steps of each change of the leader, and of each restart under one leader. known: from old to new.
function timelines(known) {
  const after = (from, kinds, fits) => {
    const steps = [];
    for (const [kind, text] of kinds) {
      const event = known.find((each) => each.kind === kind && fits(each));
      if (event) steps.push([text, event.unix_us]);
    }
    steps.sort((left, right) => left[1] - right[1]);
    const first = from ?? steps[0]?.[1];
    return { at: first, steps: steps.map(([text, at]) => [text, (at - first) / 1000]) };
  };
  const tokens = [...new Set(known.filter((event) => event.kind === "LEADER_GRANTED").map((event) => event.token))].slice(-MOST_SHOWN);
  const takeovers = tokens.map((token) => ({ token, ...after(null, LEADER, (event) => event.token === token) }))
    .filter(({ steps }) => steps.length > 1);
  const restarts = known.filter((event) => CAUSES.includes(event.kind)).slice(-10).map((cause) => ({
    text: cause.text || words(cause.kind),
    ...after(cause.unix_us, LEADER.slice(3), (event) => event.token === cause.token && event.attempt > cause.attempt),
  })).filter(({ steps }) => steps.length);
  return { takeovers: takeovers.reverse(), restarts: restarts.reverse() };
}
