// visible writes what a text has in it to change how it is read, such as the signs that
// turn the direction of writing, so that it can be seen.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const visible = (text) => text.replace(hidden, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

// h makes an element.
export function h(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (v !== null && v !== undefined) e.setAttribute(k, v);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined).map((c) => (typeof c === "string" ? visible(c) : c)));
  return e;
}

// say changes a text if it has to.
export function say(e, text, className) {
  text = visible(text);
  if (e.textContent !== text) e.textContent = text;
  if (className !== undefined && e.className !== className) e.className = className;
}

// refill replaces what a part shows. Who has the focus in it has it again on the same thing, and
// what was scrolled sideways stays so.
export function refill(part, ...children) {
  const was = part.contains(document.activeElement) ? document.activeElement : null;
  const sideways = [...part.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
  part.replaceChildren(...children);
  part.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = sideways[i] ?? 0; });
  if (was) [...part.querySelectorAll("a, summary, [tabindex]")].find((e) => e.localName === was.localName && e.getAttribute("href") === was.getAttribute("href"))?.focus({ preventScroll: true });
}

// stateOf is how the signal of a stream stands to the limits of its producers; one of less than 1 is off.
export function stateOf(stream, { lag_warn: warn, lag_pause: pause }) {
  if (stream.paused) return { name: "paused", css: "elevated" };
  if (stream.signal === null) return { name: "worker off", css: "off" };
  if (pause > 0 && stream.signal >= pause) return { name: "backpressure", css: "backpressure" };
  if (warn > 0 && stream.signal >= warn) return { name: "elevated", css: "elevated" };
  return { name: "nominal", css: "nominal" };
}

// tile is one number with a name, a note and room for a picture.
export function tile(name) {
  const value = h("dd", {}, "–"), note = h("dd", { class: "note" }), picture = h("dd", { class: "spark" });
  return { root: h("div", { class: "tile" }, h("dt", {}, name), value, note, picture), value, note, picture };
}
