import { ask as confirm } from "/ui/dialog.js";
import { Refused, follow, getJSON, signIn, signOut } from "/ui/live.js";
import { h } from "/ui/dom.js";
import { serverSays } from "/ui/format.js";
import { overview } from "/ui/overview.js";
import { streamPage } from "/ui/stream.js";

const main = document.getElementById("main");
const link = document.getElementById("link");
const crumbs = document.getElementById("crumbs");
const out = document.getElementById("out");
const renew = document.getElementById("renew");

let view = null; // what is shown: { update(state), add(state) }
let state = null; // what was heard last
let missing; // what could not be shown: the stream that the address names, or null for all of them
let turns = 0; // how often another address was opened
let page; // the digest of the page's files that was heard first: these are running
let following = false;

function linked(text, ok) {
  if (link.textContent !== text) link.textContent = text;
  link.className = ok ? "" : "off";
  document.body.classList.toggle("stale", !ok && view !== null);
}

// named is the stream that the address names, or null.
function named() {
  if (!location.hash.startsWith("#/s/")) return null;
  const text = location.hash.slice(4);
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody wrote it by hand
  }
}

// open shows what the address names.
async function open() {
  const id = named();
  crumbs.replaceChildren(...(id === null ? [] : [h("span", { class: "mono" }, id)]));
  document.title = id === null ? "weir" : `${id} · weir`;
  missing = undefined;
  const turn = ++turns;
  try {
    const next = id === null ? await overview(getJSON) : await streamPage(id, getJSON);
    if (turn !== turns) return; // somebody went on meanwhile
    view = next;
    main.replaceChildren(next.root);
    if (state) next.update(state);
  } catch (e) {
    if (e instanceof Refused) throw e;
    if (turn !== turns) return;
    view = null;
    missing = id;
    main.replaceChildren(h("p", { class: "empty" }, e.message));
  }
}

// enter signs in with a key that may see the page. With another one nothing would be shown, and
// nothing to sign out with.
async function enter(key) {
  await signIn(key);
  try {
    await getJSON("/ui/history");
  } catch (e) {
    if (e.status === 403) await signOut();
    throw e;
  }
}

// ask shows the form for a key, and goes on when there is one.
function ask() {
  if (main.querySelector("form.sign")) return; // somebody may have begun to type
  view = state = null;
  missing = undefined;
  turns++;
  crumbs.replaceChildren();
  document.title = "weir";
  linked("signed out", false);
  out.hidden = true;
  const input = h("input", { type: "password", autocomplete: "current-password", id: "key", required: "" });
  const why = h("p", { role: "alert" });
  const form = h("form", { class: "sign" },
    h("h1", {}, "Sign in"), h("p", {}, "This server wants a key. You stay signed in for twelve hours."),
    h("label", { for: "key" }, "Key"), input, why, h("button", { class: "plain" }, "Sign in"));
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    try {
      await enter(input.value);
      run();
    } catch (e) {
      why.textContent = e instanceof Refused ? "The server does not know this key." : e.message;
      input.select();
    }
  });
  main.replaceChildren(form);
  input.focus();
}

function got(next) {
  state = next;
  serverSays(next.ts_ms);
  out.hidden = !next.key;
  if (next.key) out.title = `signed in with ${next.key}`;
  page ??= next.page;
  renew.hidden = next.page === page;
  linked("live", true);
  const worst = next.findings.some((f) => f.severity === "error") ? "● " : "";
  const title = document.title.replace(/^● /, "");
  document.title = worst + title;
  view?.update(next);
  if (missing === null || next.streams.some((s) => s.id === missing)) open().catch(() => {}); // follow hears it, too
}

// run shows what the address names and follows the numbers until the server wants a key.
async function run() {
  try {
    await open();
    if (following) return;
    following = true;
    await follow(got, (why) => linked(why, false)).finally(() => { following = false; });
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    ask();
  }
}

renew.addEventListener("click", () => location.reload());

out.addEventListener("click", async () => {
  try {
    await signOut();
    location.reload();
  } catch (e) {
    if (await confirm("You are still signed in.", `The server did not end the session: ${e.message}.`, "Try again")) out.click();
  }
});

addEventListener("hashchange", async () => {
  try {
    await open();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    ask();
  }
});
run();
