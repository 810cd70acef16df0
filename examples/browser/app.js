// A page of any origin that `weir serve --cors-origins` lists: it shows the records of a topic
// as they come, and does the jobs of a queue. Nothing but what browsers have is needed.

const form = document.querySelector("form");
const status = document.querySelector("[role=status]");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const show = (list, text) => {
	const line = document.createElement("li");
	line.textContent = text; // never as HTML: anyone may have written it
	document.querySelector(list).append(line);
};

form.addEventListener("submit", (event) => {
	event.preventDefault();
	const { server, topic, token, queue, key } = Object.fromEntries(new FormData(form));
	form.inert = true;
	subscribe(server, token, topic);
	if (queue) work(server, key, queue);
});

// subscribe shows a topic from its beginning. An EventSource connects again by itself, with the id of
// the last event, and the server goes on behind that: nothing is missed and nothing comes twice.
async function subscribe(server, token, topic) {
	for (let from = 0; ; await pause(1000)) {
		const session = await open(server, token, topic, from);
		if (!session) continue;
		await new Promise((over) => {
			const auth = token ? `&token=${encodeURIComponent(token)}` : "";
			// An EventSource has an event "error" of its own; prefixed names keep the two apart.
			const source = new EventSource(`${server}/v0/watch/${session.wid}?events=prefixed${auth}`);
			source.addEventListener("open", () => (status.textContent = "live"));
			source.addEventListener("weir-record", (e) => {
				const batch = JSON.parse(e.data);
				for (const r of batch.records) show("#records", JSON.stringify(r.data));
				from = batch.to_seq;
			});
			source.addEventListener("weir-tombstone", (e) => {
				const gap = JSON.parse(e.data);
				show("#records", `${gap.gap_from} to ${gap.gap_to} are gone: ${gap.reason}`);
				from = gap.gap_to;
			});
			source.addEventListener("weir-error", (e) => {
				const { code, message } = JSON.parse(e.data);
				status.textContent = message;
				if (code === 410) source.close(), over(); // the session has ended: make another one
			});
			source.addEventListener("error", () => {
				status.textContent = "connecting again";
				if (source.readyState === EventSource.CLOSED) over(); // refused: the token may have ended
			});
		});
	}
}

// open makes a watch session, or returns nothing if that has to be tried again.
async function open(server, token, topic, from) {
	try {
		const answer = await fetch(`${server}/v0/watch`, {
			method: "POST",
			headers: { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) },
			body: JSON.stringify({ topics: { [topic]: { from_seq: from } } }),
		});
		const body = await answer.json();
		if (answer.ok) return body;
		status.textContent = body.error.message; // errors can be read, too
	} catch {
		status.textContent = "no answer";
	}
}

// work claims the jobs of a queue, one after the other, and acks those that are done. A job that was
// not acked when the connection broke comes again when its lease is over: work must bear that.
async function work(server, key, queue) {
	const node = `page-${crypto.randomUUID()}`;
	for (; ; await pause(1000)) {
		await new Promise((over) => {
			// The key goes among the protocols, since a page can set no other header and a URL ends up in logs.
			const socket = new WebSocket(server.replace(/^http/, "ws") + "/v0/ws", ["weir", ...(key ? [`weir.token.${key}`] : [])]);
			const send = (message) => socket.send(JSON.stringify({ topic: queue, node, ...message }));
			const claim = () => send({ op: "claim", wait_ms: 20000, lease_ms: 5000 });
			socket.addEventListener("open", claim);
			socket.addEventListener("close", over);
			socket.addEventListener("message", (e) => {
				const m = JSON.parse(e.data);
				if (m.op === "claimed" && m.claimed.length > 0) {
					const [job] = m.claimed;
					// Here the work is done. What takes long sends {op: "extend"} now and then.
					send({ op: "ack", seqs: [job.$seq], lease_ids: [job.lease_id], request_id: job.data });
				} else if (m.op === "acked") {
					if (m.acked === 1) show("#jobs", JSON.stringify(m.request_id));
					claim();
				} else if (m.op === "claimed") {
					claim(); // none came
				} else if (m.op === "error" && m.code !== "server_shutting_down") {
					status.textContent = m.message;
					setTimeout(() => socket.close(), 1000); // and try again
				}
			});
		});
	}
}
