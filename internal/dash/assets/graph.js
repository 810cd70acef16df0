// Routers as a graph: topics in columns, from those that only give to those that only get.
import { svg } from "/ui/chart.js";
import { count } from "/ui/format.js";

const wide = 190, high = 34, across = 120, down = 18;

// columns puts each topic behind all that lead to it; on a loop, where it is met first.
function columns(routers) {
  const names = [...new Set(routers.flatMap((r) => [r.source, r.dest]))], at = new Map();
  const place = (name, column, path) => {
    if (path.has(name) || (at.get(name) ?? -1) >= column) return;
    at.set(name, column);
    path.add(name);
    for (const r of routers) if (r.source === name) place(r.dest, column + 1, path);
    path.delete(name);
  };
  const given = new Set(routers.map((r) => r.dest));
  for (const name of names) if (!given.has(name)) place(name, 0, new Set());
  for (const name of names) if (!at.has(name)) place(name, 0, new Set());
  const list = [];
  for (const name of names.sort()) (list[at.get(name)] ??= []).push(name);
  return list.filter(Boolean);
}

const clip = (name, n) => (name.length > n ? `${name.slice(0, n - 1)}…` : name);

export function graph(routers, here) {
  const list = columns(routers), spots = new Map();
  const height = Math.max(...list.map((c) => c.length)) * (high + down) - down;
  list.forEach((column, i) => column.forEach((name, j) => {
    const top = (height - (column.length * (high + down) - down)) / 2;
    spots.set(name, { x: i * (wide + across), y: top + j * (high + down) });
  }));
  const width = list.length * (wide + across) - across;
  const root = svg("svg", { class: "graph", viewBox: `-2 -2 ${width + 4} ${height + 4}`, width: width + 4, height: height + 4, role: "group", "aria-label": `Routers: ${routers.map((r) => `${r.source} to ${r.dest}`).join(", ")}` },
    svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto" }, svg("path", { d: "M1 1L7 4L1 7", class: "tip" }))));
  for (const r of routers) {
    const a = spots.get(r.source), b = spots.get(r.dest), x = a.x + wide, y = a.y + high / 2, to = b.y + high / 2;
    const back = b.x <= a.x, mid = back ? 0 : (b.x - x) / 2;
    const title = svg("title");
    title.textContent = `${r.name}: ${count(r.forwarded_total)} copies${r.filter ? `, tag ${r.filter}` : ""}`;
    root.append(svg("path", { class: "edge", "marker-end": "url(#tip)", d: back ? `M${a.x + wide / 2} ${a.y + high}C${a.x + wide / 2} ${a.y + high + 40} ${b.x + wide / 2} ${b.y + high + 40} ${b.x + wide / 2} ${b.y + high}` : `M${x} ${y}C${x + mid} ${y} ${b.x - mid} ${to} ${b.x - 2} ${to}` }, title));
    if (r.filter && !back) {
      const t = svg("text", { x: x + mid, y: (y + to) / 2 - 6, "text-anchor": "middle" });
      t.textContent = clip(r.filter, 16);
      root.append(t);
    }
  }
  for (const [name, { x, y }] of spots) {
    const t = svg("text", { x: x + 12, y: y + high / 2 + 4, class: "node" }), title = svg("title");
    t.textContent = clip(name, 22);
    title.textContent = name;
    root.append(svg("a", { href: `#/s/${encodeURIComponent(name)}`, class: name === here ? "here" : "", ...(name === here ? { "aria-current": "page" } : {}) },
      svg("rect", { x, y, width: wide, height: high, rx: 6 }), t, title));
  }
  return root;
}
