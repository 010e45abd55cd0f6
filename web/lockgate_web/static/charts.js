// Small drawings in SVG, and the rates that they show.
import { h, s } from "./dom.js";

const KEPT = 90; // shown in a small drawing
const REMEMBERED = 900; // ten minutes and more

// Rates of counters that are seen now and then; a counter that has gone back says nothing for a moment.
export class Rates {
  constructor() {
    this.points = new Map();
  }

  add(name, value, now = performance.now()) {
    const known = this.points.get(name) ?? { at: now, value, rates: [], times: [] };
    this.points.set(name, known);
    const seconds = (now - known.at) / 1000;
    if (seconds < 0.7) return;
    known.rates.push(value < known.value ? null : (value - known.value) / seconds);
    known.times.push(Date.now());
    if (known.rates.length > REMEMBERED) [known.rates, known.times].forEach((list) => list.shift());
    known.at = now;
    known.value = value;
  }

  // What was known before: totals with their times since 1970, from old to new. What is known already is kept.
  precede(name, unixMs, totals) {
    const known = this.points.get(name);
    const rates = [];
    const times = [];
    for (let at = 1; at < totals.length; at++) {
      if (known?.times.length && unixMs[at] >= known.times[0]) break;
      rates.push(totals[at] < totals[at - 1] ? null : ((totals[at] - totals[at - 1]) * 1000) / (unixMs[at] - unixMs[at - 1]));
      times.push(unixMs[at]);
    }
    if (known) Object.assign(known, { rates: [...rates, ...known.rates].slice(-REMEMBERED), times: [...times, ...known.times].slice(-REMEMBERED) });
  }

  all(name) {
    return this.points.get(name)?.rates.slice(-KEPT) ?? [];
  }

  // [seconds since a moment, rate], by this browser's clock, from some seconds before it to some after it.
  around(name, unixMs, before, after) {
    const known = this.points.get(name);
    return (known?.times ?? []).map((at, index) => [(at - unixMs) / 1000, known.rates[index]]).filter(([x]) => x >= -before && x <= after);
  }

  // Over the last few seconds: counters move with each batch.
  now(name) {
    const some = this.all(name).slice(-4).filter((value) => value !== null);
    return some.length ? some.reduce((sum, value) => sum + value, 0) / some.length : null;
  }
}

export function sparkline(values, label, width = 110, height = 26) {
  const known = values.map((value) => value ?? 0);
  const most = Math.max(...known, 1);
  const x = (at) => width - (known.length - 1 - at) * (width / (KEPT - 1));
  const y = (value) => height - 2 - (value / most) * (height - 4);
  const line = known.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const area = known.length ? `${x(0)},${height} ${line} ${width},${height}` : "";
  return s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    s("polygon", { class: "area", points: area }), s("polyline", { class: "spark", points: line }));
}

// points: [text, value, mark] from old to new; those with a mark look different.
export function plot(title, points, format, width = 360, height = 130) {
  const top = Math.max(...points.map(([, value]) => value), 1);
  const step = (width - 70) / Math.max(points.length, 1);
  const bars = points.map(([text, value, mark], at) => {
    const tall = Math.max(1, (value / top) * (height - 40));
    return s("rect", { class: mark ? "bar marked" : "bar", x: 60 + at * step, y: height - 18 - tall, width: Math.max(1, step - 2), height: tall },
      s("title", {}, `${text}: ${format(value)}${mark ? `, ${mark}` : ""}`));
  });
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `${title}: at most ${format(top)}, last ${points.length ? format(points.at(-1)[1]) : "none"}` },
    s("line", { class: "axis", x1: 58, x2: width, y1: height - 18, y2: height - 18 }),
    s("text", { class: "dim", x: 0, y: 28 }, format(top)), s("text", { class: "dim", x: 0, y: height - 16 }, "0"),
    s("text", { class: "dim", x: 60, y: height - 3 }, points[0]?.[0] ?? ""),
    s("text", { class: "dim", x: width, y: height - 3, "text-anchor": "end" }, points.at(-1)?.[0] ?? ""), bars);
  return h("figure", { class: "tile" }, h("figcaption", { class: "label" }, title), svg);
}

// The rate around a moment, which is marked. points: [seconds since it, rate]; null for a rate breaks the line.
export function course(title, points, before, after, format, width = 640, height = 96) {
  const top = Math.max(...points.map(([, value]) => value ?? 0), 1);
  const x = (seconds) => 60 + ((seconds + before) / (before + after)) * (width - 64);
  const y = (value) => height - 18 - (value / top) * (height - 32);
  let isBroken = true;
  const path = points.map(([seconds, value]) => {
    if (value === null) { isBroken = true; return ""; }
    const step = `${isBroken ? "M" : "L"}${x(seconds).toFixed(1)} ${y(value).toFixed(1)}`;
    isBroken = false;
    return step;
  }).join("");
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "course", "aria-label": `${title}: at most ${format(top)}` },
    s("line", { class: "axis", x1: 58, x2: width, y1: height - 18, y2: height - 18 }),
    s("line", { class: "edge side", x1: x(0), x2: x(0), y1: 8, y2: height - 18 }), s("path", { class: "spark", d: path }),
    s("text", { class: "dim", x: 0, y: 18 }, format(top)), s("text", { class: "dim", x: 60, y: height - 4 }, `-${before} s`),
    s("text", { class: "dim", x: x(0), y: height - 4, "text-anchor": "middle" }, "0"),
    s("text", { class: "dim", x: width, y: height - 4, "text-anchor": "end" }, `${after} s`));
}

// steps: [text, milliseconds since the first].
export function timeline(title, steps) {
  const width = 640;
  const last = Math.max(...steps.map(([, ms]) => ms), 1);
  const height = steps.length * 24 + 6;
  const rows = steps.map(([text, ms], at) => {
    const from = at ? steps[at - 1][1] : 0;
    const x = (value) => 90 + (value / last) * 190;
    return [
      s("text", { x: 78, y: at * 24 + 17, "text-anchor": "end" }, `${ms.toFixed(ms < 10 ? 1 : 0)} ms`),
      s("rect", { class: "bar", x: x(from), y: at * 24 + 6, width: Math.max(3, x(ms) - x(from)), height: 13, rx: 2 }),
      s("text", { x: 292, y: at * 24 + 17 }, text),
    ];
  });
  const spoken = steps.map(([text, ms]) => `${text} after ${Math.round(ms)} ms`).join(", ");
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${title}: ${spoken}` }, rows);
}
