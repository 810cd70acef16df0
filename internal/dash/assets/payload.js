// What a message holds, as far as it can be shown: JSON is laid out, other text is shown as it is,
// and what is not text as bytes.
import { h } from "/ui/dom.js";
import { bytes, count } from "/ui/format.js";

// laidOut is how long a JSON text may be to be laid out, and dumped how many bytes are
// shown of what is not text.
const laidOut = 50000, dumped = 512;

function pretty(text) {
  if (text.length > laidOut || !/^\s*[[{]/.test(text)) return text;
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  return indent(text);
}

// indent lays out JSON without reading its numbers: one that is too long for a float stays
// as it is.
function indent(text) {
  let out = "", depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [part] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s"{}[\]:,]+/g)) {
    if (part === "{" || part === "[") out += part + (depth++, line());
    else if (part === "}" || part === "]") out = (depth--, /[{[]\s*$/.test(out)) ? out.trimEnd() + part : out + line() + part;
    else if (part === ",") out += part + line();
    else out += part === ":" ? ": " : part;
  }
  return out;
}

function dump(base64) {
  const all = atob(base64), rows = [];
  for (let at = 0; at < Math.min(all.length, dumped); at += 16) {
    const row = [...all.slice(at, Math.min(at + 16, dumped))];
    const hex = row.map((c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${row.map((c) => (c >= " " && c <= "~" ? c : ".")).join("")}`);
  }
  return rows.join("\n");
}

// payload shows {data | data_base64, data_bytes, cut}; whole, if it is given, gets all of a
// payload of which only the beginning is here.
export function payload(m, whole) {
  const text = m.data !== undefined;
  const body = h("pre", { class: "payload", tabindex: "0", role: "group", "aria-label": "Payload" }, text ? (m.cut ? m.data : pretty(m.data)) : dump(m.data_base64));
  const notes = [text ? (m.data === "" ? "empty" : bytes(m.data_bytes)) : `${bytes(m.data_bytes)}, not text`];
  if (m.cut) notes.push(`the first ${count(text ? m.data.length : dumped)} are shown`);
  else if (!text && m.data_bytes > dumped) notes.push(`the first ${dumped} bytes are shown`);
  const note = h("p", { class: "mute" }, `${notes.join("; ")} `);
  const root = h("div", {}, body, note);
  if (m.cut && whole) {
    const button = h("button", { type: "button", class: "quiet" }, "Show more");
    button.addEventListener("click", async () => {
      try {
        root.replaceWith(payload(await whole()));
      } catch (e) {
        button.replaceWith(h("span", { class: "bad" }, e.message));
      }
    });
    note.append(button);
  }
  return root;
}

// headers shows a map as rows.
export const headers = (map) => h("dl", { class: "facts" }, ...Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)).map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", { class: "mono" }, v))));
