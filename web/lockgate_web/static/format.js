// Numbers, times and states as text.
export const count = (value) => value?.toLocaleString("en") ?? "-";

export const rate = (value) => (value == null ? "-" : `${brief(value)}/s`);

export function brief(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return Math.round(value).toLocaleString("en");
}

export function size(bytes) {
  let value = bytes ?? 0;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return unit === "B" ? `${value} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

export const millis = (value) => (value >= 10000 ? `${(value / 1000).toFixed(1)} s` : `${Math.round(value)} ms`);

export const percent = (share) => (share == null ? "-" : `${Math.round(share * 100)} %`);

// Behind the clock, in milliseconds.
export function lag(ms) {
  if (ms == null) return "-";
  const seconds = ms / 1000;
  if (seconds < 90) return `${seconds.toFixed(1)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400).toLocaleString("en")} days`;
}

// What sources have found and not read yet: of a job, a vertex or a subtask. Null where it is not known.
export function backlog({ backlog_records: records, backlog_bytes: bytes, backlog_splits: splits }) {
  const many = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
  const amounts = [records == null ? null : many(records, "record"), bytes == null ? null : size(bytes)].filter(Boolean).join(" + ");
  if (splits == null || (amounts && !splits)) return amounts || null;
  return amounts ? `${amounts} in ${many(splits, "split")}` : many(splits, "split");
}

export function ago(unixMs) {
  if (!unixMs) return "-";
  const seconds = Math.max(0, (Date.now() - unixMs) / 1000);
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

// Seconds of UTC; "-" for what a date cannot hold.
export const utc = (unixMs) => (unixMs == null || Math.abs(unixMs) > 8e15 ? "-" : new Date(unixMs).toISOString().replace("T", " ").replace(/\..*/, ""));

export const moment = (unixMs) => (unixMs ? `${utc(unixMs)} UTC` : "-");

// Of UTC, to the millisecond; with its date when it is older than a day.
export function clock(unixUs) {
  const text = new Date(unixUs / 1000).toISOString().slice(0, 23).replace("T", " ");
  return Date.now() - unixUs / 1000 < 86400000 ? text.slice(11) : text;
}

const LOOKS = { RUNNING: "good", FINISHED: "off", CANCELED: "off", FAILED: "bad", HELD_BACK: "bad" };
export const look = (state) => LOOKS[state] ?? "wait";
export const words = (name) => name.toLowerCase().replaceAll("_", " ");
export const ENDED = ["FINISHED", "FAILED", "CANCELED"];
