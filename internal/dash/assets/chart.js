// Time series as SVG. A value that is not known is a gap.
import { clock, count, known, ms } from "/ui/format.js";

const NS = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const e = document.createElementNS(NS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// newest cuts series to where something is known: a page that is new shows ten minutes,
// not an hour of nothing.
function newest(series, step) {
  const n = series[0].values.length;
  const first = Math.min(...series.map((s) => { const i = s.values.findIndex(known); return i < 0 ? n : i; }));
  const from = Math.max(0, Math.min(first, n - Math.round(600000 / step)));
  return series.map((s) => ({ ...s, values: s.values.slice(from) }));
}

// paths returns the line through the values, and the area below it, one piece for each
// stretch without a gap.
function paths(values, w, h, top) {
  let line = "", area = "", from = -1;
  const x = (i) => (values.length < 2 ? w : (i * w) / (values.length - 1)).toFixed(1);
  const y = (v) => (h - (top > 0 ? (v / top) * h : 0)).toFixed(1);
  const close = (to) => {
    if (from < 0) return;
    if (from === to) line += `h.01`;
    area += `L${x(to)} ${h}L${x(from)} ${h}Z`;
    from = -1;
  };
  values.forEach((v, i) => {
    if (!known(v)) return close(i - 1);
    const at = `${x(i)} ${y(v)}`;
    line += (from < 0 ? "M" : "L") + at;
    area += (from < 0 ? "M" : "L") + at;
    if (from < 0) from = i;
  });
  close(values.length - 1);
  return { line, area };
}

export function spark(values, step, label) {
  [{ values }] = newest([{ values }], step);
  const top = Math.max(1e-9, ...values.filter(known));
  const { line, area } = paths(values, 200, 24, top);
  return svg("svg", { class: "spark", viewBox: "0 -1 200 26", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("path", { class: "area", d: area }), svg("path", { class: "line", d: line }));
}

// flow is a cumulative flow diagram: how many came and how many left since the first point;
// the distance between the lines is what has gathered meanwhile.
export function flow(arrived, left, at) {
  const sum = (values) => {
    let n = 0;
    return values.map((v) => (known(v) ? (n += (v * at.step) / 1000) : null));
  };
  const from = arrived.findIndex((v, i) => known(v) && known(left[i]));
  const cut = (values) => values.map((v, i) => (i < from || from < 0 ? null : v));
  return chart("Came and left", [{ name: "came", values: sum(cut(arrived)) }, { name: "left", values: sum(cut(left)) }], { ...at, format: count });
}

const ago = (span) => (span < 570000 && span % 60000 > 5000 ? `${(span / 60000).toFixed(1)} min ago` : `${Math.round(span / 60000)} min ago`);

const times = [1, 2, 4, 10, 20, 40, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 40000, 60000, 120000, 240000, 600000, 1200000, 2400000, 3600000, 7200000, 14400000, 28800000, 43200000, 86400000, 172800000];

// nice is the next number at or above v that is round, and half of which is.
function nice(v, format) {
  if (!(v > 0)) return format === count ? 2 : 1;
  const time = format === ms && v > 1 ? times.find((t) => t >= v * 0.999) : undefined;
  if (time) return time;
  const unit = Math.max(10 ** Math.floor(Math.log10(v)), format === count ? 1 : 0);
  return [1, 2, 4, 6, 8, 10, 20].map((m) => m * unit).find((m) => m >= v * 0.999 && (format !== count || m % 2 === 0));
}

// fit is the width of a chart in a list of n.
export function fit(list, n, i) {
  const all = list.clientWidth || 560, two = all >= 860 && !(n % 2 === 1 && i === n - 1);
  return Math.max(220, Math.floor(two ? (all - 16) / 2 : all) - 30);
}

// drawer draws a list of charts anew, unless somebody is reading in it: a pointer or a focus
// that rests there for longer does not stop them.
export function drawer(list) {
  let used = 0;
  for (const event of ["pointermove", "keydown", "focusin"]) list.addEventListener(event, () => { used = Date.now(); });
  return (draw) => {
    if (list.matches(":hover, :focus-within") && Date.now() - used < 10000) return;
    const focused = [...list.children].findIndex((c) => c.contains(document.activeElement));
    list.replaceChildren(...draw());
    list.children[focused]?.querySelector("[tabindex]")?.focus({ preventScroll: true });
  };
}

// chart draws series = [{name, values}] that end at end, step milliseconds apart.
export function chart(title, series, { end, step, format, width, limits = [] }) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const name = document.createElement("span");
  name.className = "title";
  name.textContent = title;
  caption.append(name);
  const keys = series.map((_, i) => {
    const key = document.createElement("span");
    key.className = `key c${i}`;
    caption.append(key);
    return key;
  });
  series = newest(series, step);
  const w = width, h = 116, left = 0, n = series[0].values.length;
  const highest = Math.max(0, ...series.flatMap((s) => s.values.filter(known)));
  const top = nice(Math.max(highest, ...limits.filter((l) => l.at > 0 && l.at <= highest * 2).map((l) => l.at)), format);
  const root = svg("svg", { class: "chart", viewBox: `0 -12 ${w} ${h + 34}`, role: "img", tabindex: "0" });
  for (const part of [0, 0.5, 1]) {
    const y = h - part * h;
    root.append(svg("line", { class: "grid", x1: left, x2: w, y1: y, y2: y }));
    if (part === 1 || part > 0 && format(top * part) !== format(top)) {
      const t = svg("text", { x: 0, y: y - 3 });
      t.textContent = format(top * part);
      root.append(t);
    }
  }
  for (const l of limits) {
    if (l.at > top || l.at < 0) continue;
    const y = h - (l.at / top) * h;
    const t = svg("text", { x: w, y: y - 3, "text-anchor": "end" });
    t.textContent = l.name;
    root.append(svg("line", { class: "limit", x1: left, x2: w, y1: y, y2: y }), t);
  }
  series.forEach((s, i) => {
    const { line, area } = paths(s.values, w, h, top);
    const g = svg("g", { class: `c${i}` });
    if (i === 0) g.append(svg("path", { class: "area", d: area }));
    g.append(svg("path", { class: "line", d: line }));
    root.append(g);
  });
  [0, 1 / 3, 2 / 3, 1].forEach((part) => {
    const t = svg("text", { x: part * w, y: h + 16, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" });
    t.textContent = part === 1 ? "now" : ago((1 - part) * n * step);
    root.append(t);
  });
  const cross = svg("line", { class: "cross", y1: 0, y2: h, visibility: "hidden" });
  root.append(cross);
  let at = n - 1;
  const show = (i, moving) => {
    at = Math.min(Math.max(i, 0), n - 1);
    name.textContent = moving ? `${title}, ${clock(end - (n - 1 - at) * step)}` : title;
    series.forEach((s, j) => {
      const b = document.createElement("b");
      b.textContent = format(s.values[at]);
      keys[j].replaceChildren(`${s.name} `, b);
    });
    const x = n < 2 ? w : (at * w) / (n - 1);
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    cross.setAttribute("visibility", moving ? "visible" : "hidden");
  };
  const rest = () => show(n - 1, false);
  root.addEventListener("pointermove", (e) => {
    const box = root.getBoundingClientRect();
    show(Math.round(((e.clientX - box.left) / box.width) * (n - 1)), true);
  });
  root.addEventListener("pointerleave", rest);
  root.addEventListener("blur", rest);
  root.addEventListener("keydown", (e) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -n, End: n }[e.key];
    if (by === undefined) return;
    e.preventDefault();
    show(at + by, true);
  });
  rest();
  root.setAttribute("aria-label", `${title}: ${series.map((s) => `${s.name} ${format(s.values.at(-1))}`).join(", ")}; the last hour. Arrow keys move along it.`);
  figure.append(caption, root);
  return figure;
}
