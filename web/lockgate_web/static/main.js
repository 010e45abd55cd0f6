// Which page this is, its connection, and the login.
import { Connection } from "./connection.js";
import { h, show } from "./dom.js";
import { jobPage } from "./job.js";
import { overviewPage } from "./overview.js";

const REFRESH_MS = 10000;
const place = document.getElementById("main");
const light = document.getElementById("connection");
let page = null;

const connection = new Connection(
  (state, base) => {
    light.className = state;
    light.textContent = state === "lost" ? "connection lost, looking for a coordinator" : base ? `live, by ${new URL(base).host}` : "live";
  },
  () => login(),
);

async function begin() {
  try {
    const session = await connection.refresh();
    visitor(session);
    open();
  } catch (error) {
    if (error.status !== 401) show(place, h("p", { class: "notice error" }, error.message));
  }
}

function open() {
  page?.abort();
  page = new AbortController();
  const key = /^\/jobs\/([^/]+)$/.exec(location.pathname)?.[1];
  if (key) jobPage(place, connection, decodeURIComponent(key), page.signal, open);
  else overviewPage(place, connection, page.signal);
}

function visitor(session) {
  document.getElementById("cluster").textContent = `cluster ${session.cluster}`;
  const box = document.getElementById("visitor");
  if (session.owner) return show(box, h("span", {}, "owner"));
  const said = h("span", { class: "bad", role: "alert" });
  const leave = async () => {
    try {
      await connection.post("/api/v1/logout");
      login();
    } catch (error) {
      said.textContent = ` ${error.message}`;
    }
  };
  show(box, h("span", {}, `${session.name} (${session.roles.join(", ")}) `), h("button", { class: "plain", onclick: leave }, "Log out"), said);
}

function login() {
  connection.session = null;
  connection.token = "";
  if (document.getElementById("token")) return; // someone types in it
  page?.abort();
  show(document.getElementById("visitor"));
  light.className = "";
  light.textContent = "not logged in";
  const input = h("input", { type: "password", id: "token", class: "wide", autocomplete: "current-password", required: true });
  const said = h("p", { class: "bad", role: "alert" });
  const enter = async (event) => {
    event.preventDefault();
    try {
      const session = await connection.post("/api/v1/login", { token: input.value.trim() });
      connection.token = input.value.trim();
      connection.session = session;
      begin();
    } catch (error) {
      said.textContent = error.message;
    }
  };
  show(place, h("form", { class: "card", onsubmit: enter }, h("h1", {}, "Log in"),
    h("label", { for: "token" }, "Token or JWT of this cluster"), input, said, h("button", { type: "submit" }, "Log in")));
  input.focus();
}

setInterval(() => connection.session && connection.refresh().catch(() => {}), REFRESH_MS);
begin();
