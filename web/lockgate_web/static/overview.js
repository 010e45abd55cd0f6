// The cluster and its jobs at a glance.
import { Rates, sparkline } from "./charts.js";
import { h, pager, show, table, tile } from "./dom.js";
import { ENDED, ago, backlog, count, look, millis, rate, size, words } from "./format.js";
import { leadersTable } from "./leaders.js";

const SHOWN = 100;
const rates = new Rates();

export function overviewPage(place, connection, signal) {
  show(place, h("p", { class: "dim" }, "waiting for the first answer"));
  let offset = 0;
  let last = null;
  const turn = (to) => { offset = to; draw(); };
  const draw = () => last && show(place, content(last, offset, turn));
  connection.stream("/api/v1/events", {
    overview: (value) => {
      for (const job of value.jobs) rates.add(job.key, job.records_read ?? 0);
      rates.add("", value.jobs.reduce((sum, job) => sum + (job.records_read ?? 0), 0));
      last = value;
      draw();
    },
    failure: (value) => show(place, h("p", { class: "notice" }, value.error), last ? content(last, offset, turn) : null),
    refused: (error) => show(place, h("p", { class: "notice error" }, error.message)),
  }, signal);
}

function content({ cluster, jobs }, offset, turn) {
  return [h("h1", {}, "Overview"), tiles(cluster, jobs), warnings(cluster), jobsCard(jobs, offset, turn), processes(cluster)];
}

function tiles(cluster, jobs) {
  const { leader, coordinators, task_managers: managers } = cluster;
  const slots = managers.reduce((sum, manager) => sum + manager.slots, 0);
  const free = managers.reduce((sum, manager) => sum + manager.free_slots, 0);
  const running = jobs.filter((job) => !ENDED.includes(job.state));
  const total = running.map((job) => rates.now(job.key)).filter((value) => value !== null);
  return h("div", { class: "tiles" },
    leader ? tile("Leader", leader.id, `token ${leader.token}, since ${ago(leader.granted_unix_us / 1000)}`, leader.address)
      : tile("Leader", "none now", "a standby takes over"),
    tile("Standbys", String(coordinators.filter((each) => !each.leader).length),
      coordinators.filter((each) => !each.leader).map((each) => each.id).join(", ") || "none"),
    tile("Task managers", ...(cluster.leader_silent ? ["not known"] : [String(managers.length), `${slots - free} of ${slots} slots in use`])),
    tile("Jobs", `${running.length} running`, Object.entries(cluster.jobs).map(([state, n]) => `${n} ${words(state)}`).join(", ") || "none yet"),
    tile("Records read", rate(total.length ? total.reduce((sum, value) => sum + value, 0) : null),
      sparkline(rates.all(""), "records read by all jobs in the last minute and a half", 150), "by all jobs"),
    tile("ZooKeeper", zookeeper(cluster), cluster.zookeeper, leader ? `session ${leader.session}` : ""));
}

function zookeeper({ leader, leader_silent: silent, zookeeper_trouble: trouble }) {
  if (!leader) return "-";
  if (silent) return "not known";
  return trouble ? "not reachable" : "session open";
}

function warnings(cluster) {
  const said = [];
  if (cluster.coordinators.length === 1) said.push("There is no standby: when the leader dies, jobs wait until it is started again.");
  if (cluster.leader_silent) said.push("The coordinator that answered could not ask the leader: its task managers are not known.");
  else if (!cluster.task_managers.length) said.push("There is no task manager: jobs wait for slots.");
  if (cluster.zookeeper_trouble) said.push(`The leader cannot reach ZooKeeper (${cluster.zookeeper_trouble}): tasks run on, but no checkpoint completes and no job is accepted.`);
  return said.map((text) => h("p", { class: "notice" }, text));
}

function jobsCard(jobs, offset, turn) {
  const rows = jobs.slice(offset, offset + SHOWN).map((job) => [
    h("a", { href: `/jobs/${encodeURIComponent(job.key)}`, id: `job-${job.key}` }, job.key),
    h("span", { class: `state ${look(job.state)}` }, words(job.state)),
    ENDED.includes(job.state) ? "-" : rate(rates.now(job.key)),
    sparkline(rates.all(job.key), `records read by ${job.key} in the last minute and a half`),
    count(job.records_read),
    backlog(job) ?? "-",
    job.last_checkpoint ? `${job.last_checkpoint.id}, ${size(job.last_checkpoint.size_bytes)}, ${millis(job.last_checkpoint.duration_ms)}` : "none yet",
    String(job.restarts),
    (job.state === "FAILED" ? job.error : job.message).split("\n")[0].slice(0, 160),
  ]);
  const columns = [["Job", ""], ["State", ""], ["Records/s", "right"], ["", "hide"], ["Read", "right hide"], ["Backlog", "right hide"],
    ["Last checkpoint", "hide nowrap"], ["Restarts", "right"], ["", "small dim hide"]];
  return h("section", { class: "card" }, h("h2", {}, "Jobs"),
    table("Jobs", columns, rows, "No jobs. Submit one with: lockgate submit FILE.py"),
    pager(["Newer", "Older"], offset, SHOWN, jobs.length, turn));
}

function processes(cluster) {
  const coordinators = cluster.coordinators.map((each) => [each.id, each.address, String(each.pid),
    h("span", { class: `state ${each.leader ? "good" : "off"}` }, each.leader ? "leader" : "standby"),
    each.dashboard ? h("a", { href: each.dashboard }, each.dashboard.replace(/^https?:\/\//, "")) : "-"]);
  const managers = cluster.task_managers.map((each) => [each.id, each.address, String(each.pid), String(each.slots), String(each.free_slots)]);
  return [
    h("section", { class: "card" }, h("h2", {}, "Coordinators"),
      table("Coordinators", [["Id", ""], ["Address", "hide"], ["Process", "right hide"], ["Role", ""], ["Dashboard", ""]], coordinators, "none")),
    cluster.leaders?.length > 1 ? h("section", { class: "card" }, h("h2", {}, "Leaders so far"), leadersTable(cluster.leaders)) : null,
    h("section", { class: "card" }, h("h2", {}, "Task managers"),
      table("Task managers", [["Id", ""], ["Address", "hide"], ["Process", "right hide"], ["Slots", "right"], ["Free", "right"]], managers, "none")),
  ];
}
