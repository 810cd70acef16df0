// Sends events to the topic of the URL and reads them back, each in both modes.
const { CloudEvent, HTTP } = require("cloudevents");
const { deepStrictEqual } = require("node:assert");

const topic = process.argv[2];

async function ask(url, options) {
  const answer = await fetch(url, options);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
  const headers = Object.fromEntries(answer.headers.entries());
  const bytes = Buffer.from(await answer.arrayBuffer());
  const binary = headers["content-type"] === "application/octet-stream";
  return { headers, body: binary ? bytes : bytes.toString() };
}

const common = { source: "/tests/javascript", type: "weir.test", time: "2026-01-02T03:04:05.678Z", place: "somewhere" };
const events = [
  new CloudEvent({ ...common, id: "js-1", datacontenttype: "application/json", data: { a: [1, 2.5, null], "ü": "x" } }),
  new CloudEvent({ ...common, id: "js-2", datacontenttype: "text/plain", data: "Grüße\n", subject: "s/1" }),
  new CloudEvent({ ...common, id: "js-3", datacontenttype: "application/octet-stream", data: new Uint8Array([0, 255, 16, 128]) }),
];

const plain = (event) => {
  const { data, data_base64, ...rest } = event.toJSON();
  const bytes = data_base64 ?? (ArrayBuffer.isView(data) ? Buffer.from(data).toString("base64") : undefined);
  return { ...rest, data: bytes ?? data };
};

(async () => {
  let seq = 0;
  for (const event of events) {
    for (const mode of ["binary", "structured"]) {
      const message = HTTP[mode](event);
      await ask(topic, { method: "POST", headers: message.headers, body: message.body });
      seq++;
      for (const accept of ["*/*", "application/cloudevents+json"]) {
        const got = HTTP.toEvent(await ask(`${topic}/records/${seq}`, { headers: { Accept: accept } }));
        deepStrictEqual(plain(got), plain(event), `${event.id}, ${mode}, ${accept}`);
      }
    }
  }
  const batch = await ask(`${topic}/diff`, { method: "POST", headers: { Accept: "application/cloudevents-batch+json" } });
  const all = HTTP.toEvent(batch);
  deepStrictEqual(all.map((e) => e.id), events.flatMap((e) => [e.id, e.id]));
  console.log("ok", seq);
})().catch((e) => { console.error(e); process.exit(1); });
