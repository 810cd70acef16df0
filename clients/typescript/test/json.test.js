import assert from "node:assert/strict";
import { test } from "node:test";
import { parseJSON, stringifyJSON } from "@weirmq/client";
import { answering, connect, newTopic } from "./kit.js";

test("integers are numbers up to 2^53 - 1 and bigints beyond", () => {
  const text = '{"a":9007199254740991,"b":9007199254740992,"c":-9007199254740993,"d":[18446744073709551615,1],"e":1e300,"f":0.1234567890123456789}';
  assert.deepEqual(parseJSON(text), {
    a: 9007199254740991,
    b: 9007199254740992n,
    c: -9007199254740993n,
    d: [18446744073709551615n, 1],
    e: 1e300,
    f: 0.12345678901234568,
  });
});

test("digits in strings and names stay what they are", () => {
  const text = '{"18446744073709551615":"18446744073709551615","q":"\\" 18446744073709551615 \\\\","x":18446744073709551615}';
  assert.deepEqual(parseJSON(text), { "18446744073709551615": "18446744073709551615", q: '" 18446744073709551615 \\', x: 18446744073709551615n });
});

test("a large integer is found at every place of a text, and behind any number of shorter ones", () => {
  for (let before = 0; before < 40; before++) {
    const pad = " ".repeat(before) + "123456789012345, ".repeat(before % 3);
    for (const integer of ["9007199254740993", "-9007199254740993", "18446744073709551615"]) {
      assert.equal(parseJSON(`[${pad}${integer}]`).at(-1), BigInt(integer));
    }
  }
  assert.equal(parseJSON("9007199254740993"), 9007199254740993n);
});

test("a bigint is written as an integer, wherever it stands", () => {
  assert.equal(stringifyJSON({ a: [2n ** 64n - 1n, -1n], b: "1n" }), '{"a":[18446744073709551615,-1],"b":"1n"}');
  assert.equal(stringifyJSON(7n), "7");
  assert.throws(() => stringifyJSON(undefined), TypeError);
});

test("without large integers the result is that of JSON.parse, and errors are, too", () => {
  for (const text of ['[1,"\\u00e9\\ud83d\\ude00",null,true,-0.5e-3,{"__proto__":1}]', '"1234567890123456 \\"7"', "[12345678901234.56,-1234567890123456]"]) {
    assert.deepEqual(parseJSON(text), JSON.parse(text));
    assert.equal(stringifyJSON(parseJSON(text)), JSON.stringify(JSON.parse(text)));
  }
  for (const text of ["", "{", '{"a":12345678901234567890', '["1234567890123456]', "[01234567890123456789]"]) {
    assert.throws(() => parseJSON(text), SyntaxError);
  }
});

test("integers of 64 bits in data come back from the server as they were sent", async () => {
  const client = connect();
  const topic = newTopic();
  const data = { max: 2n ** 64n - 1n, min: -(2n ** 63n), odd: 9007199254740993n, small: 7, text: "18446744073709551615" };
  await client.publish(topic, data, { meta: { odd: 9007199254740993n } });
  const { records } = await client.diff(topic);
  assert.deepEqual(records[0].data, data);
  assert.deepEqual(records[0].meta, { odd: 9007199254740993n });
});

test("numbers of records beyond 2^53 are exact in answers and in the calls that use them", async () => {
  const fetch = answering((path) =>
    path.endsWith("/claim")
      ? '{"topic":"t","claimed":[{"$seq":9007199254740993,"lease_id":"lease_1","deadline":1,"$ts":1,"deliveries":1,"data":0}],"count":1}'
      : '{"records":[],"next_from_seq":18446744073709551615,"skipped":[9007199254740993]}',
  );
  const client = connect({ fetch });
  const [job] = await client.claim("t");
  assert.equal(job.seq, 9007199254740993n);
  const { skipped } = await client.ack("t", job);
  assert.deepEqual(skipped, [9007199254740993n]);
  assert.match(fetch.sent[1], /"seqs":\[9007199254740993\]/);
  const { nextFromSeq } = await client.diff("t", { fromSeq: 9007199254740993n });
  assert.equal(nextFromSeq, 18446744073709551615n);
  assert.match(fetch.sent[2], /"from_seq":9007199254740993[,}]/);
});

test("the server itself takes a cursor beyond 2^53", async () => {
  const client = connect();
  const topic = newTopic();
  await client.publish(topic, 1);
  const { tombstone } = await client.diff(topic, { fromSeq: 9007199254740993n });
  assert.equal(tombstone.reason, "recreated");
});
