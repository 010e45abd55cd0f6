// What a page remembers of a job, each within bounds, whichever part is shown: its events, and its checkpoints.
const EVENTS_OF_A_KIND = 400; // twice what a coordinator keeps, and sends again after the stream was lost
const MOST_CHECKPOINTS = 1000;
const PAUSE_MS = 5000; // between two questions while the checkpoints are shown
const HIDDEN_PAUSE_MS = 60000; // a coordinator keeps the last 200: with one each second, as many seconds
const OUTCOMES = ["CHECKPOINT_COMPLETED", "CHECKPOINT_ABORTED"];

// The newest of each kind, so that checkpoints push no takeover out; those that are the first in their attempt apart.
export class EventLog {
  constructor() {
    this.kept = new Map();
    this.newest = new Map(); // token and attempt by kind
    this.heard = new Set(); // what is kept, as text
  }

  // True for one that is new.
  add(event) {
    const text = JSON.stringify(event);
    if (this.heard.has(text)) return false;
    this.heard.add(text);
    const attempt = `${event.token} ${event.attempt}`;
    const group = `${event.kind} ${this.newest.get(event.kind) !== attempt}`;
    this.newest.set(event.kind, attempt);
    const some = this.kept.get(group) ?? [];
    this.kept.set(group, some);
    some.push(event);
    if (some.length > EVENTS_OF_A_KIND) this.heard.delete(JSON.stringify(some.shift()));
    return true;
  }

  // From old to new.
  all() {
    return [...this.kept.values()].flat().sort((left, right) => left.unix_us - right.unix_us);
  }
}

// What became of checkpoints: what the leader knows, and what this page has seen under the leaders before it.
export class CheckpointLog {
  constructor(ask) {
    this.ask = ask; // for the leader's history
    this.rows = new Map(); // by id
    this.trouble = "";
    this.newest = 0; // of the leader's last answer
    this.onChange = null; // while it is shown
    this.asked = -Infinity;
    this.timer = null;
  }

  show(onChange) {
    this.onChange = onChange;
    clearTimeout(this.timer);
    this.timer = null;
    return onChange && this.load();
  }

  // An event of the job.
  hear({ kind, checkpoint_id: id }) {
    if (kind === "CHECKPOINT_COMPLETED" && id > this.newest) this.push();
    if (OUTCOMES.includes(kind)) this.want();
  }

  // A newer one has taken the place of the oldest retained one, if the limit was reached: until the leader says so,
  // that one is known to be completed, and no more.
  push() {
    const checkpoints = this.all().filter((each) => each.kind === "checkpoint" && each.outcome === "completed");
    const oldest = checkpoints.find((each) => each.retained);
    if (oldest && checkpoints.some((each) => each.retained === false)) oldest.retained = null;
  }

  // The last completed one, which is known before the rest. Whether it is retained, the leader says then.
  last(checkpoint) {
    if (!checkpoint || this.rows.has(checkpoint.id)) return;
    const unknown = { reason: null, text: "", attempt: null, acknowledged: null, subtasks: null };
    this.rows.set(checkpoint.id, { ...checkpoint, ...unknown, outcome: "completed", retained: null });
    this.onChange?.();
    this.want();
  }

  // Asks soon, unless it is about to.
  want() {
    const pause = this.onChange ? PAUSE_MS : HIDDEN_PAUSE_MS;
    this.timer ??= setTimeout(() => this.load(), Math.max(0, this.asked + pause - performance.now()));
  }

  async load() {
    clearTimeout(this.timer);
    this.timer = null;
    this.asked = performance.now();
    try {
      this.merge(await this.ask());
      this.trouble = "";
    } catch (error) {
      this.trouble = error.message;
    }
    this.onChange?.();
  }

  // What the leader does not list any more is not retained; what is newer than its answer may be.
  merge(found) {
    this.newest = Math.max(this.newest, found[0]?.id ?? 0);
    for (const row of this.rows.values()) if (row.id <= found[0]?.id) row.retained = false;
    for (const row of found) {
      const known = this.rows.get(row.id);
      const isPoorer = row.attempt === null && known?.outcome === row.outcome; // a later leader has not seen it
      this.rows.set(row.id, isPoorer ? { ...known, retained: row.retained } : row);
    }
    const ids = [...this.rows.keys()].sort((left, right) => left - right);
    for (const id of ids.slice(0, -MOST_CHECKPOINTS)) if (!this.rows.get(id).retained) this.rows.delete(id);
  }

  // From old to new.
  all() {
    return [...this.rows.values()].sort((left, right) => left.id - right.id);
  }
}
