// The newest leaders of the cluster.
import { h, table } from "./dom.js";
import { moment } from "./format.js";

// leaders: as the API lists them, the present one last.
export function leadersTable(leaders) {
  const rows = [...leaders].reverse().map((each, at) => [String(each.token), each.id, moment(each.granted_unix_us / 1000),
    each.ended_unix_us ? moment(each.ended_unix_us / 1000) : at ? "not known" : h("span", { class: "state good" }, "leads"),
    lasted(each.granted_unix_us, each.ended_unix_us ?? (at ? null : Date.now() * 1000))]);
  return table("Leaders", [["Token", "right"], ["Coordinator", ""], ["Since", ""], ["Until", ""], ["For", "right hide"]], rows, "None is recorded yet.");
}

function lasted(from, to) {
  if (to === null) return "-";
  const seconds = Math.max(0, (to - from) / 1e6);
  if (seconds < 90) return `${seconds.toFixed(1)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}
