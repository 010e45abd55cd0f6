// What the page asks, and whom: its own coordinator, or another one when that has died.
const SILENCE_MS = 4000; // streams send something every second
const PROBE_MS = 1500;
const PAUSE_MS = 150;

export class Refusal extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export class Connection {
  // onChange(state, place): "live", "lost"; onStranger(): a login is needed.
  constructor(onChange, onStranger) {
    this.base = ""; // "": the page's own origin
    this.others = [];
    this.pass = "";
    this.token = ""; // typed in this page; a cookie keeps it for the next one
    this.session = null;
    this.onChange = onChange;
    this.onStranger = onStranger;
  }

  url(path, base = this.base) {
    return base ? `${base}${path}${path.includes("?") ? "&" : "?"}pass=${encodeURIComponent(this.pass)}` : path;
  }

  options(base = this.base) {
    const headers = base && this.token ? { Authorization: `Bearer ${this.token}` } : {};
    return { headers, credentials: "include", cache: "no-store" };
  }

  async get(path) {
    for (let tries = 0; ; tries++) {
      try {
        return await answered(await fetch(this.url(path), { ...this.options(), signal: AbortSignal.timeout(8000) }));
      } catch (error) {
        if (error instanceof Refusal || tries > 1) throw this.judged(error);
        await this.find();
      }
    }
  }

  async post(path, body) {
    if (this.base) {
      throw new Refusal(0, `The coordinator of this page is gone. Open ${this.base} to change something.`);
    }
    const options = { method: "POST", body: JSON.stringify(body ?? {}), ...this.options() };
    options.headers["Content-Type"] = "application/json";
    try {
      return await answered(await fetch(path, options));
    } catch (error) {
      throw this.judged(error);
    }
  }

  judged(error) {
    if (error instanceof Refusal && error.status === 401) this.onStranger();
    return error;
  }

  // Calls on.KIND(value) for each event until `signal` aborts or the server says that this was all.
  async stream(path, on, signal) {
    while (!signal.aborted) {
      try {
        if (await this.read(path, on, signal)) return;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refusal && error.status !== 503) {
          this.judged(error);
          if (!signal.aborted) on.refused?.(error); // a login took its place
          return;
        }
      }
      this.onChange("lost", this.base);
      await pause(PAUSE_MS);
      await this.find(signal);
    }
  }

  async read(path, on, signal) {
    const own = new AbortController();
    const stop = () => own.abort();
    signal.addEventListener("abort", stop);
    let timer = setTimeout(stop, SILENCE_MS);
    try {
      const answer = await fetch(this.url(path), { ...this.options(), signal: own.signal });
      if (!answer.ok) await answered(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return false;
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE_MS);
        const parts = (text + value).split("\n\n");
        text = parts.pop();
        for (const part of parts) if (this.deliver(part, on)) return true;
      }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      own.abort();
    }
  }

  deliver(part, on) {
    const kind = /^event: (.*)$/m.exec(part)?.[1];
    const data = /^data: (.*)$/m.exec(part)?.[1];
    if (!kind) return false;
    this.onChange("live", this.base);
    on[kind]?.(JSON.parse(data));
    return kind === "end";
  }

  // The first coordinator that answers, the page's own if it does.
  async find(signal) {
    while (!signal?.aborted) {
      try {
        this.base = await Promise.any(["", ...this.others].map((base) => this.probe(base)));
        return;
      } catch {
        this.onChange("lost", this.base);
        await pause(PAUSE_MS);
      }
    }
  }

  async probe(base) {
    const answer = await fetch(this.url("/healthz", base), { ...this.options(base), signal: AbortSignal.timeout(PROBE_MS) });
    if (!answer.ok) throw new Error("not healthy");
    if (base) await pause(50); // the own one first
    return base;
  }

  // Who the page is for, and where it may go; also lets the others get ready.
  async refresh() {
    if (this.base) {
      try {
        this.base = await this.probe("");
      } catch {
        return this.session;
      }
    }
    this.session = await this.get("/api/v1/session");
    this.pass = this.session.pass;
    this.others = this.session.dashboards;
    await Promise.allSettled(this.others.map((base) => this.probe(base)));
    return this.session;
  }

  may(role) {
    const roles = this.session?.roles ?? [];
    return roles.includes("admin") || roles.includes(role);
  }
}

async function answered(answer) {
  const value = await answer.json().catch(() => ({ error: `the answer was ${answer.status}` }));
  if (!answer.ok) throw new Refusal(answer.status, value.error);
  return value;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
