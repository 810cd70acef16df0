import { chart, drawer, fit, flow } from "/ui/chart.js";
import { detail, tiers } from "/ui/detail.js";
import { h, refill, say, stateOf, tile } from "/ui/dom.js";
import { count, known, ms, rate } from "/ui/format.js";
import { History } from "/ui/history.js";
import { letters } from "/ui/letters.js";

export async function streamPage(id, getJSON) {
  const past = new History(await getJSON(`/ui/history/${encodeURIComponent(id)}`));
  const title = h("h1", { class: "mono" }, id), about = h("p");
  const card = lagCard(), tiles = {}, list = h("dl", { class: "tiles" });
  for (const [id, label] of [["lag", "Waiting"], ["oldest", "Oldest"], ["in", "In"], ["out", "Out"], ["refused", "Refused"], ["dead", "Dead letters"]]) {
    tiles[id] = tile(label);
    list.append(tiles[id].root);
  }
  const charts = h("div", { class: "charts" }), redraw = drawer(charts), admission = h("div"), more = detail(id), dead = letters(id);
  const top = h("div", { class: "top" }, card.root, list);
  const found = h("div");
  const root = h("div", {}, h("div", { class: "head" }, h("div", {}, title, about)), found, top, charts, admission, more.who, dead.root, more.last);
  let said = "", last = {};
  return {
    root,
    update(state) {
      const s = state.streams.find((v) => v.id === id);
      for (const part of [top, found, admission, more.who, dead.root, more.last]) part.hidden = !s; // what was last heard of one that is gone is not so now
      if (!s) {
        say(about, state.more ? "It is not there any more, or not among the busiest, which the dashboard reads." : "It is not there any more.");
        if (past.add(state.ts_ms, {})) redraw(() => pictures(past, last, state, charts));
        return;
      }
      last = s;
      say(about, [s.letters_of ? `dead letters of ${s.letters_of}` : s.kind, s.group && `group ${s.group}`, s.server, s.durability, known(s.stored) && `${count(s.stored)} stored`].filter(Boolean).join(" · "));
      const mine = state.findings.filter((f) => f.stream === id), text = JSON.stringify(mine);
      if (text !== said) found.replaceChildren(...(mine.length ? [findings(mine)] : []));
      said = text;
      card.root.hidden = s.kind === "log";
      top.classList.toggle("alone", s.kind === "log");
      for (const id of ["oldest", "refused", "dead"]) tiles[id].root.hidden = s.kind === "log";
      card.update(s, state);
      show(tiles, s);
      dead.root.hidden = s.kind === "log" || Boolean(s.letters_of);
      if (!dead.root.hidden) dead.update(s);
      if (past.add(state.ts_ms, s)) redraw(() => pictures(past, s, state, charts));
      if (s.control) refill(admission, tiers(s.control));
      more.update(s);
    },
  };
}

const findings = (list) => h("ul", { class: "findings" }, ...list.map((f) => h("li", { class: f.severity }, h("i"), h("span", { class: "where" }, f.severity), h("span", {}, `${f.what} `, h("span", { class: "do" }, f.do)))));

const limit = (n) => (n > 0 ? count(n) : "off");

// lagCard is the card of the workers' signal: a dash and "worker off" where there is none.
function lagCard() {
  const value = h("b", {}, "–"), status = h("span"), limits = h("p");
  const root = h("section", { class: "card off", "aria-label": "Lag" }, h("p", { class: "name" }, h("span", {}, "Lag"), status), value, limits);
  return {
    root,
    update(s, state) {
      const is = stateOf(s, state);
      if (root.className !== `card ${is.css}`) root.className = `card ${is.css}`;
      say(value, count(s.signal));
      if (s.error) say(status, "no answer", "state backpressure");
      else say(status, is.name, `state ${is.css}`);
      say(limits, known(s.silent_ms) ? `no sign of a worker for ${ms(s.silent_ms)}` : `warn ${limit(state.lag_warn)} · pause ${limit(state.lag_pause)}`);
    },
  };
}

function show(tiles, s) {
  if (s.kind === "log") say(tiles.lag.root.firstChild, "Stored");
  say(tiles.lag.value, s.kind === "log" ? count(s.stored) : count(s.lag));
  say(tiles.lag.note, s.control && known(s.control.wait_ms) ? `expected wait ${ms(s.control.wait_ms)}` : "");
  say(tiles.oldest.value, known(s.oldest_age_ms) ? ms(s.oldest_age_ms) : "–");
  say(tiles.in.value, rate(s.in_per_second));
  say(tiles.in.note, "per second");
  say(tiles.out.value, rate(s.out_per_second));
  say(tiles.out.note, "per second");
  say(tiles.refused.value, rate(s.refused_per_second), s.refused_per_second > 0 ? "warn" : "");
  say(tiles.refused.note, Object.entries(s.refused_by ?? {}).map(([why, n]) => `${why.replaceAll("_", " ")} ${rate(n)}`).join(", ") || "per second");
  say(tiles.dead.value, count(s.dead_letters), s.dead_letters > 0 ? "bad" : "");
}

function pictures(past, s, state, list) {
  const v = past.series, n = s.kind === "log" ? 1 : 5;
  let i = 0;
  const draw = (title, series, format, limits) => chart(title, series.map(([name, values]) => ({ name, values })), { ...at(format), limits });
  const at = (format) => ({ end: past.end, step: past.step, width: fit(list, n, i++), format });
  const flows = () => draw("Flow per second", [["in", v.in_per_second], ["out", v.out_per_second], ["refused", v.refused_per_second]], rate);
  if (s.kind === "log") return [flows()];
  return [
    draw("Waiting and in work", [["waiting", v.lag], ["in work", v.pending]], count),
    flows(),
    flow(v.in_per_second, v.out_per_second, at(count)),
    draw("Age of the oldest", [["age", v.oldest_age_ms]], ms),
    draw("Lag", [["in work", v.signal]], count, [{ name: "warn", at: state.lag_warn }, { name: "pause", at: state.lag_pause }]),
  ];
}
