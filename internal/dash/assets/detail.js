// Who holds what, what was stored last, what is missing, and where records go from here.
import { h, refill } from "/ui/dom.js";
import { count, known, ms, percent, rate, when } from "/ui/format.js";
import { graph } from "/ui/graph.js";
import { getJSON } from "/ui/live.js";
import { headers, payload } from "/ui/payload.js";

// every is how often this is read while the page is seen.
const every = 3000;

const idle = (v) => (known(v) ? ms(v) : "–");

// table aligns numbers, which are texts, to the right, and elements to the left.
function table(label, heads, rows, css = "") {
  const side = (i) => (rows.length === 0 || rows[0][i] instanceof Element ? "t" : null);
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label }, h("table", { class: css },
    h("thead", {}, h("tr", {}, ...heads.map((t, i) => h("th", { scope: "col", class: side(i) }, t)))),
    h("tbody", {}, ...rows.map((cells) => h("tr", {}, ...cells.map((c, i) => h("td", { class: side(i) }, c)))))));
}

const section = (title, note, ...content) => h("section", {}, h("h2", {}, title, note ? h("small", {}, note) : null), ...content);
const mono = (text) => h("span", { class: "mono" }, text);

// unknown is a section of which nothing can be said; a log has none of them.
const unknown = (title, log) => (log ? null : section(title, "", h("p", { class: "mute" }, "– not known")));

function workers(d, log) {
  if (d.workers === null) return unknown("Workers", log);
  if (d.workers.length === 0) return section("Workers", "", h("p", { class: "mute" }, "Nobody holds anything."));
  const idles = d.workers.some((w) => known(w.idle_ms));
  return section("Workers", "", table("Workers", ["Worker", "Holds", ...(idles ? ["Last seen"] : [])],
    d.workers.map((w) => [mono(w.name), count(w.holds), ...(idles ? [idle(w.idle_ms)] : [])])));
}

function held(d, log) {
  if (d.held === null) return unknown("In work", log);
  if (d.held.length === 0) return null;
  const leases = d.held.some((v) => known(v.lease_ends_ms));
  return section("In work", "the oldest first", table("In work", ["Message", "Worker", "Delivery", leases ? "Lease ends in" : "Idle"],
    d.held.map((v) => [mono(v.id), mono(v.worker || "nobody"), count(v.deliveries), leases ? (v.lease_ends_ms > 0 ? ms(v.lease_ends_ms) : "now") : idle(v.idle_ms)])));
}

function groups(d) {
  if (!d.groups || d.groups.length < 2) return null;
  return section("Groups", "", table("Groups", ["Group", "Workers", "In work", "Waiting"],
    d.groups.map((g) => [mono(g.name), count(g.workers), count(g.pending), count(g.lag)])));
}

// tiers is what the adaptive guard does with each priority.
export function tiers(control) {
  const offers = (t) => t.offered_per_second > 0;
  const share = (t) => (offers(t) ? Math.min(1, t.refused_per_second / t.offered_per_second) : null);
  return section("Admission", `a message may wait ${ms(control.wait_slo_ms)}`,
    h("dl", { class: "facts wide" },
      ...[["Expected wait", ms(control.wait_ms)], ["Done", known(control.drain_per_second) ? `${rate(control.drain_per_second)} a second` : "–"],
        ["Refused", percent(control.refused_share)], ["Lets in", `${control.cut} and above`]].map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v)))),
    table("Admission by priority", ["Priority", "Offered /s", "Refused /s", "Share refused"],
      (control.tiers ?? []).map((t) => [h("span", {}, t.name), rate(t.offered_per_second), rate(t.refused_per_second), percent(share(t))])));
}

function gap(d) {
  if (!d.gap) return null;
  const n = known(d.gap.missed) && d.gap.missed > 0 ? `${count(d.gap.missed)} records` : "Records";
  return h("p", { class: "gap" }, `${n} before the oldest one are gone: ${d.gap.from} to ${d.gap.to}, ${d.gap.reason}.`);
}

function records(d, title) {
  if (d.records === null) return null;
  if (d.records.length === 0) return section(title, "", gap(d), h("p", { class: "mute" }, "The last ones are done or gone."));
  const rows = d.records.map((r) => [mono(r.id), h("span", {}, known(r.ts_ms) ? when(r.ts_ms) : "–"),
    h("div", {}, payload(r), r.headers && Object.keys(r.headers).length > 0 ? headers(r.headers) : null)]);
  return section(title, "the newest first", gap(d), table(title, ["Number", "Stored", "Message"], rows, "records"));
}

export function detail(id) {
  const holds = h("div", { class: "pair" }), others = h("div"), last = h("div"), ways = h("div");
  const said = new Map();
  let next = 0;

  // put replaces a part if it has changed and nobody is reading in it.
  function put(part, data, make) {
    const text = JSON.stringify(data);
    if (said.get(part) === text || part.contains(document.activeElement) || part.contains(getSelection().anchorNode) && !getSelection().isCollapsed) return;
    said.set(part, text);
    refill(part, ...make().filter(Boolean));
  }

  async function load(s) {
    try {
      const d = await getJSON(`/ui/streams/${encodeURIComponent(id)}`);
      put(holds, [d.workers, d.held], () => [workers(d, s.kind === "log"), held(d, s.kind === "log")]);
      put(others, d.groups, () => [groups(d)]);
      put(ways, d.routers?.map((r) => [r.name, r.source, r.dest, r.filter]), () => (d.routers?.length ? [section("Routers", "", h("div", { class: "scroll drawn", role: "region", tabindex: "0", "aria-label": "Routers" }, graph(d.routers, id)))] : []));
      put(last, [d.records?.map((r) => r.id), d.gap], () => [records(d, s.letters_of ? "Dead letters" : "Last records")]);
    } catch {
      // The numbers above say what is wrong; the next reading tries again.
    }
  }

  const who = h("div", {}, holds, others, ways);
  return {
    who,
    last,
    update(s) {
      who.hidden = Boolean(s.error); // nobody knows who holds what now
      if (s.error || document.hidden || Date.now() < next) return;
      next = Date.now() + every;
      load(s);
    },
  };
}
