import { chart, drawer, fit, flow, spark } from "/ui/chart.js";
import { h, refill, say, stateOf, tile } from "/ui/dom.js";
import { count, known, ms, rate } from "/ui/format.js";
import { History } from "/ui/history.js";

const columns = [
  { id: "name", name: "Stream", key: (s) => s.name },
  { id: "state", name: "State", key: (s) => (s.error ? Infinity : s.kind === "log" ? -2 : s.signal ?? -1) },
  { id: "lag", name: "Waiting", key: (s) => s.lag ?? (s.kind === "log" ? -1 : 0), text: (s) => (s.kind === "log" ? "" : count(s.lag)) },
  { id: "oldest", name: "Oldest", key: (s) => s.oldest_age_ms ?? -1, text: (s) => (known(s.oldest_age_ms) ? ms(s.oldest_age_ms) : ""), css: "mid" },
  { id: "pending", name: "In work", key: (s) => s.pending ?? -1, text: (s) => (s.kind === "log" ? "" : count(s.pending)), css: "wide" },
  { id: "in", name: "In /s", key: (s) => s.in_per_second ?? -1, text: (s) => rate(s.in_per_second) },
  { id: "out", name: "Out /s", key: (s) => s.out_per_second ?? -1, text: (s) => (s.kind === "log" ? "" : rate(s.out_per_second)), css: "mid" },
  { id: "refused", name: "Refused /s", key: (s) => s.refused_per_second ?? -1, text: (s) => (s.refused_per_second > 0 ? rate(s.refused_per_second) : ""), css: "wide" },
  { id: "dead", name: "Dead", key: (s) => s.dead_letters ?? -1, text: (s) => (s.dead_letters > 0 ? count(s.dead_letters) : ""), css: "wide" },
  { id: "stored", name: "Stored", key: (s) => s.stored ?? -1, text: (s) => count(s.stored), css: "wide" },
];

// shown bounds the rows of the table; the filter finds the others.
const shown = 200;

// named is how many findings are seen at once.
const named = 7;

export async function overview(getJSON) {
  const past = new History(await getJSON("/ui/history"));
  const findings = h("div"), tiles = {}, list = h("dl", { class: "tiles" });
  for (const [id, name] of [["backlog", "Waiting"], ["in", "In"], ["out", "Out"], ["refused", "Refused"], ["pressure", "Pressure"], ["fsync", "Disk sync"], ["push", "Push delay"]]) {
    tiles[id] = tile(name);
    list.append(tiles[id].root);
  }
  const table = streamTable();
  const charts = h("div", { class: "charts" }), redraw = drawer(charts);
  const root = h("div", {}, h("h1", { class: "skip" }, "Overview"), findings, list, table.root, charts);
  let said = "";
  return {
    root,
    update(state) {
      const now = JSON.stringify(state.findings);
      if (now !== said) refill(findings, listFindings(state.findings, findings.querySelector("details[open]") !== null));
      said = now;
      const totals = totalsOf(state), fresh = past.add(state.ts_ms, totals);
      for (const id of ["pressure", "fsync", "push"]) tiles[id].root.hidden = state.server === null;
      showTiles(tiles, state, totals);
      if (fresh) showSparks(tiles, past);
      table.update(state);
      charts.hidden = state.streams.length === 0;
      if (fresh) redraw(() => pictures(past, state.server !== null, charts));
    },
  };
}

function totalsOf(state) {
  const sum = (f) => {
    const values = state.streams.map(f).filter(known);
    return values.length ? values.reduce((n, v) => n + v, 0) : null;
  };
  const s = state.server;
  return {
    pressure: s?.pressure, fsync_ms: s?.fsync_ms, push_ms: s?.push_ms, connections: s?.connections,
    in_per_second: sum((v) => v.in_per_second), out_per_second: sum((v) => v.out_per_second),
    refused: sum((v) => v.refused_per_second),
    backlog: sum((v) => (v.kind === "log" || v.letters_of ? null : v.lag)),
  };
}

function showTiles(tiles, state, t) {
  const s = state.server;
  say(tiles.backlog.value, count(t.backlog));
  const oldest = Math.max(-1, ...state.streams.map((v) => (v.letters_of ? -1 : v.oldest_age_ms ?? -1)));
  say(tiles.backlog.note, t.backlog === null ? "" : oldest > 0 ? `oldest ${ms(oldest)}` : "nothing waits");
  say(tiles.in.value, `${rate(t.in_per_second)}`);
  say(tiles.in.note, "come per second");
  say(tiles.out.value, `${rate(t.out_per_second)}`);
  say(tiles.out.note, "leave per second");
  say(tiles.refused.value, rate(t.refused), t.refused > 0 ? "warn" : "");
  say(tiles.refused.note, reasons(state.streams) || "per second");
  say(tiles.pressure.value, known(t.pressure) ? t.pressure.toFixed(2) : "–", t.pressure >= 0.8 ? "bad" : t.pressure >= 0.5 ? "warn" : "");
  say(tiles.pressure.note, s ? (s.rung === 0 ? "nothing is held back" : `rung ${s.rung} of 4`) : "");
  say(tiles.fsync.value, ms(t.fsync_ms));
  say(tiles.fsync.note, "mean of the last second");
  say(tiles.push.value, ms(t.push_ms));
  say(tiles.push.note, s ? `${count(s.connections)} open ${s.connections === 1 ? "stream" : "streams"}` : "");
}

// reasons are why messages are refused, the most frequent first.
function reasons(streams) {
  const sums = {};
  for (const s of streams) for (const [why, n] of Object.entries(s.refused_by ?? {})) sums[why] = (sums[why] ?? 0) + n;
  return Object.entries(sums).sort(([, a], [, b]) => b - a).map(([why, n]) => `${why.replaceAll("_", " ")} ${rate(n)}`).join(", ");
}

function showSparks(tiles, past) {
  for (const [id, series, label] of [["backlog", "backlog", "messages that wait"], ["in", "in_per_second", "records in per second"], ["out", "out_per_second", "leave per second"], ["pressure", "pressure", "pressure"], ["fsync", "fsync_ms", "disk sync"], ["push", "push_ms", "push delay"]]) {
    tiles[id].picture.className = "spark c0";
    tiles[id].picture.replaceChildren(spark(past.series[series], past.step, `${label}, the last hour`));
  }
}

function pictures(past, serves, list) {
  const { series: v } = past, all = [
    ["Flow per second", [["in", v.in_per_second], ["out", v.out_per_second]], rate],
    ["Waiting", [["messages", v.backlog]], count],
    ...(serves ? [["Disk sync", [["mean", v.fsync_ms]], ms], ["Push delay", [["mean", v.push_ms]], ms], ["Pressure", [["0 to 1", v.pressure]], (n) => (known(n) ? n.toFixed(2) : "–")]] : []),
  ];
  const n = all.length + 1, at = (i, format) => ({ end: past.end, step: past.step, width: fit(list, n, i), format });
  const charts = all.map(([title, series, format], i) => chart(title, series.map(([name, values]) => ({ name, values })), at(i === 0 ? 0 : i + 1, format)));
  return [charts[0], flow(v.in_per_second, v.out_per_second, at(0, count)), ...charts.slice(1)];
}

function listFindings(list, unfolded) {
  if (list.length === 0) return h("p", { class: "calm" }, "Nothing needs you.");
  const rows = list.map((f) => h("li", { class: f.severity }, h("i"),
    f.stream ? h("a", { class: "where", href: `#/s/${encodeURIComponent(f.stream)}` }, f.stream) : h("span", { class: "where" }, "server"),
    h("span", {}, `${f.what} `, h("span", { class: "do" }, f.do))));
  const first = h("ul", { class: "findings", "aria-label": "What is wrong" }, ...rows.slice(0, named));
  if (rows.length <= named) return first;
  return h("div", {}, first, h("details", { class: "rest", ...(unfolded ? { open: "" } : {}) }, h("summary", {}, `${rows.length - named} more`),
    h("ul", { class: "findings", "aria-label": "What else is wrong" }, ...rows.slice(named))));
}

function streamTable() {
  let sort = { id: "lag", down: true }, last = null;
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter streams by name", size: "18" });
  const heads = columns.map((c) => {
    const button = h("button", { type: "button" }, c.name);
    const th = h("th", { scope: "col", class: c.css }, button);
    button.addEventListener("click", () => {
      sort = { id: c.id, down: sort.id === c.id ? !sort.down : c.id !== "name" };
      update(last);
    });
    return th;
  });
  const body = h("tbody"), more = h("p", { class: "calm mute" }), rows = new Map();
  const scroll = h("div", { class: "scroll" }, h("table", { class: "streams" }, h("thead", {}, h("tr", {}, ...heads)), body));
  const empty = h("p", { class: "empty" });
  const root = h("section", { "aria-label": "Streams" }, h("div", { class: "tools" }, h("h2", {}, "Streams"), filter), scroll, empty, more);
  filter.addEventListener("input", () => last && update(last));

  function update(state) {
    last = state;
    const c = columns.find((v) => v.id === sort.id), sign = sort.down ? -1 : 1;
    heads.forEach((th, i) => (columns[i].id === sort.id ? th.setAttribute("aria-sort", sort.down ? "descending" : "ascending") : th.removeAttribute("aria-sort")));
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const sought = filter.value.toLowerCase(); // phones write the first letter large
    const found = state.streams.filter((s) => `${s.id} ${s.group ?? ""}`.toLowerCase().includes(sought))
      .sort((a, b) => sign * order(c.key(a), c.key(b)) || order(a.id, b.id));
    const list = found.slice(0, shown);
    const focused = document.activeElement; // a row that is moved loses it
    const keep = new Set(list.map((s) => s.id));
    for (const [id, row] of rows) if (!keep.has(id)) { row.root.remove(); rows.delete(id); }
    list.forEach((s, i) => {
      let row = rows.get(s.id);
      if (!row) rows.set(s.id, (row = streamRow(s)));
      row.update(s, state);
      if (body.children[i] !== row.root) body.insertBefore(row.root, body.children[i] ?? null);
    });
    if (body.contains(focused)) focused.focus({ preventScroll: true });
    scroll.hidden = list.length === 0;
    empty.hidden = list.length > 0;
    if (list.length === 0 && filter.value) empty.replaceChildren(state.more ? "None of the busiest streams has that in its name." : "No stream has that in its name.");
    else if (list.length === 0 && !empty.querySelector("code")) empty.replaceChildren("There is no stream yet. Publish something: ", h("br"), h("code", {}, `echo hello | weir publish ${location.origin}/jobs`));
    const unread = state.more ? "There are more topics than the dashboard reads." : "";
    say(more, found.length > shown ? `${found.length - shown} more: use the filter. ${unread}`.trim() : unread);
    more.hidden = more.textContent === "";
  }
  return { root, update };
}

const kindOf = (s) => (s.letters_of ? `dead letters of ${s.letters_of}` : [s.kind, s.group].filter(Boolean).join(" · "));

function streamRow(s) {
  const cells = columns.map((c) => h("td", { class: c.css }));
  cells[0].append(h("a", { href: `#/s/${encodeURIComponent(s.id)}`, title: s.name }, s.name), h("span", { class: "kind" }, kindOf(s)));
  const chip = h("span", { class: "state" });
  if (s.kind !== "log") cells[1].append(chip);
  return {
    root: h("tr", {}, ...cells),
    update(now, limits) {
      const state = stateOf(now, limits);
      if (now.error) say(chip, "no answer", "state backpressure");
      else if (now.kind !== "log") say(chip, state.name, `state ${state.css}`);
      columns.forEach((c, i) => c.text && say(cells[i], c.text(now)));
      cells[8].classList.toggle("bad", now.dead_letters > 0);
    },
  };
}
