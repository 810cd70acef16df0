// The connection to the server: calls, and an event stream that is opened again whenever it
// ends. Whoever has signed in has a cookie that no script can read.

export class Refused extends Error {
  message = "The server wants a key";
}

// call asks the server and returns its answer; Refused if it wants a key.
export async function call(path, options = {}) {
  const res = await fetch(path, { ...options, cache: "no-store", credentials: "same-origin" });
  if (res.status === 401) throw new Refused();
  if (!res.ok) {
    const body = await res.json().catch(() => ({}));
    throw Object.assign(new Error(body.error?.message ?? `${res.status} ${res.statusText}`), { status: res.status });
  }
  return res;
}

export const getJSON = async (path) => (await call(path)).json();

const send = (method, path, body) => call(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const postJSON = async (path, body) => (await send("POST", path, body)).json();

export const signIn = (key) => send("POST", "/ui/session", { key: key.trim() });

// signOut ends the session.
export const signOut = () => call("/ui/session", { method: "DELETE" });

// events calls got with the data of each event of an answer, to its end.
export async function events(res, got) {
  const reader = res.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) if (frame.startsWith("data: ")) got(JSON.parse(frame.slice(6)));
  }
}

// silence is after how many milliseconds without a state the page says so, and patience
// after how many it asks again: a connection may be dead without anybody saying it.
const silence = 4000, patience = 15000;

// follow calls got with every state, and down with why there are none. It returns when
// the server wants another key.
export async function follow(got, down) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 5000)) {
    const asked = new AbortController();
    let heard = performance.now();
    const watch = setInterval(() => {
      const quiet = performance.now() - heard;
      if (quiet > patience) asked.abort();
      else if (quiet > silence) down("no answer");
    }, 500);
    try {
      const res = await call("/ui/live", { headers: { Accept: "text/event-stream" }, signal: asked.signal });
      await events(res, (state) => {
        heard = performance.now();
        pause = 500;
        got(state);
      });
      down("reconnecting");
    } catch (e) {
      if (e instanceof Refused) throw e;
      down(asked.signal.aborted ? "no answer" : e instanceof TypeError ? "reconnecting" : e.message);
    } finally {
      clearInterval(watch);
    }
    await new Promise((r) => setTimeout(r, pause));
  }
}
