// The dead letters of a stream: a list, what became of each, and two actions.
import { ask } from "/ui/dialog.js";
import { h, say } from "/ui/dom.js";
import { ago, count, when } from "/ui/format.js";
import { call, events, getJSON, postJSON } from "/ui/live.js";
import { headers, payload } from "/ui/payload.js";

const reasons = { max_deliveries: "too many deliveries", poison: "poison", expired: "expired" };
const some = (n) => (n === 1 ? "1 dead letter" : `${count(n)} dead letters`);

export function letters(id) {
  const path = (verb, rest = "") => `/ui/${verb}/${encodeURIComponent(id)}${rest}`;
  const body = h("tbody"), chosen = new Map(), open = new Set(), died = new Map(); // cells and their times
  const all = h("input", { type: "checkbox", "aria-label": "Choose all that are listed" });
  const status = h("p", { class: "status", role: "status" });
  const fresh = h("button", { type: "button", class: "quiet", hidden: "" }, "The list has changed: show it");
  const more = h("button", { type: "button", class: "quiet", hidden: "" }, "Show more");
  const rate = h("input", { type: "number", min: "0", step: "any", placeholder: "no limit", size: "6", id: "rate", "aria-describedby": "per" });
  const [dry, redrive, purge] = ["Dry run", "Send back", "Purge"].map((t) => h("button", { type: "button", class: t === "Purge" ? "danger" : "plain" }, t));
  dry.className = "line";
  const head = h("h2", { id: "letters" }, "Dead letters");
  const scope = h("span", { class: "mute" });
  const tools = h("div", { class: "actions", role: "group", "aria-label": "What to do with dead letters" },
    scope, h("label", { for: "rate" }, "at most"), rate, h("span", { class: "mute", id: "per" }, "a second"), dry, redrive, purge);
  const table = h("div", { class: "scroll" }, h("table", { class: "letters" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, all), ...["Died", "Reason", "Last error", "Tries", "Message"].map((t) => h("th", { scope: "col" }, t)))), body));
  const root = h("section", { "aria-labelledby": "letters" }, head, tools, status, fresh, table, more);
  let total = null, counted = 0, read = -1, next = "", busy = false, unread = ""; // unread: why there is no list

  function scoped() {
    const n = chosen.size;
    say(scope, n > 0 ? `${some(n)} chosen` : total === null ? "all of them" : `all ${count(total)}`);
    redrive.disabled = purge.disabled = dry.disabled = busy;
  }
  // meant is what an action is for, and its name. Once at the click: a list that is read while somebody thinks about the answer chooses nothing.
  const meant = () => (chosen.size > 0 ? { which: { ids: [...chosen.keys()] }, name: some(chosen.size) }
    : { which: { all: true }, name: total === null ? "all dead letters" : total === 1 ? "the only dead letter" : `all ${some(total)}` });

  // grow tells anew how long ago letters died, unless somebody is selecting text.
  function grow() {
    if (body.contains(getSelection().anchorNode) && !getSelection().isCollapsed) return;
    for (const [cell, at] of died) say(cell, ago(at));
  }

  const reading = () => chosen.size > 0 || open.size > 0 || body.contains(document.activeElement);

  // load lists letters. One that nobody asked for takes nothing away from who has begun to read meanwhile.
  async function load(after, asked = true) {
    const got = await getJSON(path("letters", after ? `?after=${encodeURIComponent(after)}` : ""));
    if (!asked && reading()) {
      fresh.hidden = false;
      return;
    }
    if (!after) {
      body.replaceChildren();
      died.clear();
      chosen.clear();
      open.clear();
      all.checked = false;
    }
    for (const l of got.letters) body.append(...row(l));
    next = got.next ?? "";
    more.hidden = next === "";
    fresh.hidden = true;
    table.hidden = tools.hidden = body.children.length === 0;
    head.replaceChildren("Dead letters", h("small", {}, body.children.length === 0 ? "none" : `in ${got.dead_letter}, oldest first`));
    scoped();
  }

  // did says what became of an action and reads the list, also with the next numbers: what was sent back may have died again by then.
  async function did(text, css = "status") {
    say(status, text, css);
    await load().catch(() => {}); // the next numbers try again
    read = -1;
  }

  // show is load that says what went wrong. What could not be read is read again at the next numbers, but not what is refused.
  async function show(after, asked = true) {
    try {
      await load(after, asked);
      if (status.textContent === unread) say(status, "", "status");
    } catch (e) {
      if (asked || ["", unread].includes(status.textContent)) say(status, unread = e.message, "status bad");
      if (!after && !(e.status < 500)) read = -1;
    }
  }

  function row(l) {
    const box = h("input", { type: "checkbox", "aria-label": `Choose ${l.id}` });
    box.addEventListener("change", () => {
      if (box.checked) chosen.set(l.id, box);
      else chosen.delete(l.id);
      scoped();
    });
    const text = l.data !== undefined ? l.data.slice(0, 120) : `${count(l.data_bytes)} bytes that are not text`;
    const button = h("button", { type: "button", class: "open", "aria-expanded": "false" }, text || "empty");
    const detail = h("tr", { class: "detail", hidden: "" }, h("td", { colspan: "6" }));
    button.addEventListener("click", () => {
      const now = detail.hidden;
      if (now && !detail.firstChild.firstChild) detail.firstChild.append(history(l));
      detail.hidden = !now;
      button.setAttribute("aria-expanded", String(now));
      if (now) open.add(l.id);
      else open.delete(l.id);
    });
    const at = h("td", { title: when(l.dead_ms) }, ago(l.dead_ms));
    died.set(at, l.dead_ms);
    return [h("tr", {}, h("td", {}, box), at, h("td", {}, reasons[l.reason] ?? l.reason),
      h("td", { class: "error" }, l.error || "–"), h("td", {}, count(l.attempts)), h("td", { class: "data mono" }, button)), detail];
  }

  // history is what became of a letter, in the order in which it happened.
  function history(l) {
    const steps = [
      l.enqueued_ms && [when(l.enqueued_ms), `published to ${l.stream || "the stream"}${l.origin_id ? ` as ${l.origin_id}` : ""}`],
      l.redrives > 0 && ["", `sent back ${l.redrives === 1 ? "once" : `${count(l.redrives)} times`} since`],
      ["", `tried ${l.attempts === 1 ? "once" : `${count(l.attempts)} times`}${l.group ? ` in group ${l.group}` : ""}${l.consumer ? `, last by ${l.consumer}` : ""}`],
      [when(l.dead_ms), `dead: ${reasons[l.reason] ?? l.reason}${l.error ? `: ${l.error}` : ""}`],
    ].filter(Boolean);
    return h("div", { class: "letter" },
      h("ol", { class: "history" }, ...steps.map(([at, text]) => h("li", {}, h("span", { class: "mono mute" }, at), h("span", {}, text)))),
      Object.keys(l.headers).length > 0 ? headers(l.headers) : null,
      payload(l, () => getJSON(path("letters", `/${encodeURIComponent(l.id)}`))));
  }

  async function during(what, act) {
    busy = true;
    scoped();
    say(status, what, "status");
    try {
      await act();
    } catch (e) {
      say(status, e.message, "status bad");
    }
    busy = false;
    scoped();
  }

  const limit = () => Math.max(0, Number(rate.value) || 0);

  async function sendBack({ which, name }, dry_run, to_others = false) {
    const body = { ...which, rate: limit(), dry_run, to_others };
    let last = null;
    const res = await call(path("redrive"), { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", Accept: "text/event-stream" } });
    await events(res, (p) => {
      last = p;
      if (!p.done) say(status, `${count(p.sent)} sent back…`, "status");
    });
    if (!last?.done) throw new Error("The connection was lost; what was sent back before is done.");
    if (last.others) return (await ask(`${name} would also go to ${last.others.join(", ")}.`, "They read the same stream and would handle the messages, too.", "Send anyway")) ? sendBack({ which, name }, dry_run, true) : say(status, "Nothing was sent.", "status");
    if (last.error && last.sent === 0) throw new Error(last.error);
    const failed = last.failed ? `, ${count(last.failed)} could not be` : last.error ? ", then it failed" : "";
    const text = `${some(last.sent)} ${dry_run ? "would be sent back" : last.sent === 1 ? "was sent back" : "were sent back"}${failed}${last.error ? `: ${last.error}` : ""}.`;
    if (dry_run) say(status, text, failed ? "status bad" : "status");
    else await did(text, failed ? "status bad" : "status");
  }

  dry.addEventListener("click", () => during("Counting…", () => sendBack(meant(), true)));
  redrive.addEventListener("click", async () => {
    const these = meant();
    if (these.which.all && !(await ask(`Send back ${these.name}?`, `Workers get them like new messages${limit() ? `, at most ${limit()} a second while this page is open` : ""}.`, "Send back"))) return;
    during("Sending back…", () => sendBack(these, false));
  });
  purge.addEventListener("click", async () => {
    const { which, name } = meant();
    const asOf = total === null ? performance.now() : counted;
    if (!(await ask(`Purge ${name}?`, "Their payload and history are gone for good.", "Purge", true))) return;
    during("Purging…", async () => {
      const { removed } = await postJSON(path("purge"), which.all ? { ...which, older_than_ms: Math.floor(performance.now() - asOf) } : which); // not what died since
      await did(`${some(removed)} ${removed === 1 ? "is" : "are"} gone.`);
    });
  });
  all.addEventListener("change", () => body.querySelectorAll("td:first-child > input").forEach((b) => {
    b.checked = all.checked;
    b.dispatchEvent(new Event("change"));
  }));
  more.addEventListener("click", () => show(next));
  fresh.addEventListener("click", () => show());
  scoped();
  return {
    root,
    update(s) {
      total = s.dead_letters ?? null;
      counted = performance.now();
      grow();
      scoped();
      if (total === read || busy) return;
      read = total;
      if (reading()) fresh.hidden = false;
      else show("", false);
    },
  };
}
