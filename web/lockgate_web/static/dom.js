// Elements without HTML in strings: whatever a job is called, it is text.
const SVG = "http://www.w3.org/2000/svg";

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, properties, ...children) => filled(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => filled(document.createElementNS(SVG, tag), properties, children);

// While a button is held down nothing is replaced: a click counts only where it began.
let isHeld = false;
const waiting = new Map();

function release() {
  isHeld = false;
  for (const [place, children] of waiting) show(place, children);
  waiting.clear();
}

addEventListener("pointerdown", () => { isHeld = true; }, true);
addEventListener("click", () => { isHeld = false; }, true); // before what the click does
addEventListener("pointerup", () => setTimeout(release), true);
addEventListener("pointercancel", release, true);

// Puts new content in place of the old, and keeps the keyboard's focus on the element of the same id.
export function show(place, ...children) {
  if (isHeld) {
    waiting.set(place, children);
    return;
  }
  waiting.delete(place);
  const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

export function tile(label, value, ...notes) {
  return h("div", { class: "tile" }, h("div", { class: "label" }, label), h("div", { class: "value" }, value),
    notes.map((note) => h("div", { class: "note" }, note)));
}

// Null where one page is enough. texts: of the buttons; turn(offset): shows another page; name: begins the buttons' ids.
export function pager(texts, offset, step, total, turn, name = "") {
  const button = (id, text, isOff, to) => h("button", { class: "plain", id, disabled: isOff, onclick: () => turn(to) }, text);
  return total > step ? h("div", { class: "pager" }, button(`${name}before`, texts[0], !offset, Math.max(0, offset - step)),
    h("span", {}, `${offset + 1} to ${Math.min(offset + step, total)} of ${total}`),
    button(`${name}after`, texts[1], offset + step >= total, offset + step)) : null;
}

export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "dim" }, empty);
  const head = columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
  const body = rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: columns[at][1] }, cell))));
  return h("table", { "aria-label": caption }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
}
