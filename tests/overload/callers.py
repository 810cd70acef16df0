#!/usr/bin/env python3
"""Callers and workers of a weir queue that know nothing but HTTP.

Offers a queue with a wait_slo_ms more than its workers can do, in four tiers, from
callers who give up after a deadline, and says what came of it:

    weir serve --port 4000 --data-dir /tmp/weir &
    python3 tests/overload/callers.py http://127.0.0.1:4000 --load 10

Arrivals are random (Poisson) and come whether or not earlier ones are answered. A caller
who is refused tries again at most three times, after retry_after_ms and as much again at
random. Needs Python 3.9 and nothing else.
"""
import argparse
import asyncio
import json
import multiprocessing
import random
import time
import urllib.parse

TIERS = [("critical", 0.1), ("high", 0.2), ("normal", 0.3), ("low", 0.4)]


class Server:
    """HTTP/1.1 over as many connections as are in use at a time."""

    def __init__(self, base):
        url = urllib.parse.urlsplit(base)
        self.host, self.port, self.idle = url.hostname, url.port or 80, []

    async def call(self, method, path, body=None):
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(self.host, self.port)
        data = b"" if body is None else json.dumps(body).encode()
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode() + data
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        answer = json.loads(await reader.readexactly(int(fields["content-length"])))
        self.idle.append((reader, writer))
        return int(head[0].split()[1]), fields, answer


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else None


async def worker(server, path, seed, opt, done, over):
    rnd, name = random.Random(seed), f"w{seed}"
    while not over.is_set():
        _, _, got = await server.call("POST", path + "/claim", {"node": name, "max": 1})
        if not got["claimed"]:
            await asyncio.sleep(0.005)
            continue
        job = got["claimed"][0]
        await asyncio.sleep(rnd.expovariate(1 / opt.service))
        await server.call("POST", path + "/ack", {"node": name, "seqs": [job["$seq"]]})
        done[job["data"]] = time.time()


def work(opt, path, out, over):
    """The process of the workers."""

    async def run():
        server, done = Server(opt.url), {}
        await asyncio.gather(*(worker(server, path, i, opt, done, over) for i in range(opt.workers)))
        out.put(done)

    asyncio.run(run())


class Run:
    def __init__(self, opt, path):
        self.opt, self.path, self.server = opt, path, Server(opt.url)
        self.offers, self.stored, self.refusals, self.late = [], set(), [], 0

    async def caller(self, i, born, tier, rnd):
        record = {"data": i, "priority": TIERS[tier][0], "fair_key": f"user-{i % 100}"}
        for attempt in range(4):
            began = time.time()
            status, fields, answer = await self.server.call("POST", self.path, {"records": [record]})
            if status in (200, 201):
                self.stored.add(i)
                return
            error = answer["error"]
            assert status == 429 and int(fields["retry-after"]) >= 1, (status, fields, answer)
            assert error["detail"]["reason"] == "load_shedding", answer
            self.refusals.append(time.time() - began)
            wait = max(error["detail"]["retry_after_ms"] / 1000, self.opt.deadline / 20 * 2**attempt)
            wait += rnd.uniform(0, wait)
            if time.time() + wait > born + self.opt.deadline:
                return
            await asyncio.sleep(wait)

    async def arrive(self, load, length, phase, rnd, tasks):
        rate = load * self.opt.workers / self.opt.service
        at = start = time.time()
        while (at := at + rnd.expovariate(rate)) < start + length:
            await asyncio.sleep(max(0, at - time.time()))
            self.late = max(self.late, time.time() - at)
            tier = rnd.choices(range(4), [share for _, share in TIERS])[0]
            self.offers.append((at, tier, phase))
            tasks.append(asyncio.create_task(self.caller(len(self.offers) - 1, at, tier, rnd)))

    async def watch(self, ended):
        """When the queue is short again after the plateau."""
        while not ended.done():
            await asyncio.sleep(0.01)
        begin = time.time()
        while time.time() < begin + self.opt.phases[2] * self.opt.deadline:
            _, _, state = await self.server.call("GET", self.path + "?touch=false")
            if state["queue"]["ready"] / (self.opt.workers / self.opt.service) < self.opt.deadline / 10:
                return time.time() - begin
            await asyncio.sleep(0.01)
        return None

    async def run(self):
        opt, rnd, tasks = self.opt, random.Random(self.opt.seed), []
        ended = asyncio.get_running_loop().create_future()
        calm = asyncio.create_task(self.watch(ended))
        before, plateau, after = (p * opt.deadline for p in opt.phases)
        await self.arrive(0.7, before, 0, rnd, tasks)
        await self.arrive(opt.load, plateau, 1, rnd, tasks)
        ended.set_result(None)
        await self.arrive(0.7, after, 2, rnd, tasks)
        await asyncio.gather(*tasks)
        return await calm

    async def end(self):
        """Gives the workers some time to finish, and returns what is left then."""
        until = time.time() + 3 * self.opt.deadline
        while True:
            _, _, state = await self.server.call("GET", self.path + "?touch=false")
            if state["count"] == 0 or time.time() > until:
                return
            await asyncio.sleep(0.02)

    async def left(self):
        _, _, state = await self.server.call("GET", self.path + "?touch=false")
        return state["count"]


def judge(run, done, calm, left):
    opt = run.opt
    plateau = [(i, at, tier) for i, (at, tier, phase) in enumerate(run.offers) if phase == 1]
    good = [(i, tier) for i, at, tier in plateau if i in done and done[i] - at <= opt.deadline]
    capacity = opt.phases[1] * opt.deadline * opt.workers / opt.service
    took = [done[i] - run.offers[i][0] for i in done]
    tiers = [sum(tier == t for _, _, tier in plateau) for t in range(4)]
    return {
        "load": opt.load,
        "goodput": round(len(good) / min(capacity, len(plateau)), 3),
        "served_in_time_by_tier": {name: round(sum(t == k for _, t in good) / max(1, tiers[k]), 3) for k, (name, _) in enumerate(TIERS)},
        "p99_of_done_in_deadlines": round(quantile(took, 0.99) / opt.deadline, 2),
        "refused": len(run.refusals),
        "refusal_ms": {"p50": round(1000 * (quantile(run.refusals, 0.5) or 0), 2), "p99": round(1000 * (quantile(run.refusals, 0.99) or 0), 2)},
        "calm_after_deadlines": calm if calm is None else round(calm / opt.deadline, 2),
        "stored": len(run.stored),
        "left_in_the_queue": left,
        "lost": len(run.stored) - len(done) - left,
        "callers_started_late_ms": round(1000 * run.late, 1),
    }


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("url")
    p.add_argument("--load", type=float, default=10, help="times what the workers can do")
    p.add_argument("--workers", type=int, default=5)
    p.add_argument("--service", type=float, default=0.1, help="mean time of a job, seconds")
    p.add_argument("--deadline", type=float, default=2, help="when callers give up, seconds")
    p.add_argument("--slo", type=float, help="wait_slo_ms of the queue; by default the deadline, 0 for none")
    p.add_argument("--phases", type=lambda s: [float(x) for x in s.split(",")], default=[3, 8, 4], help="lengths in deadlines")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--durability", default="disk")
    opt = p.parse_args()
    slo = int(1000 * opt.deadline) if opt.slo is None else int(opt.slo)
    path = f"/v0/topics/callers-{int(time.time() * 1000)}"

    async def create():
        await Server(opt.url).call("PUT", path, {"type": "queue", "durability": opt.durability, "wait_slo_ms": slo})

    asyncio.run(create())
    out, over = multiprocessing.Queue(), multiprocessing.Event()
    workers = multiprocessing.Process(target=work, args=(opt, path, out, over))
    workers.start()

    async def offer():
        run = Run(opt, path)
        calm = await run.run()
        await run.end()
        over.set()
        done = await asyncio.to_thread(out.get)
        return judge(run, done, calm, await run.left())

    print(json.dumps(asyncio.run(offer()), indent=1))
    workers.join()


if __name__ == "__main__":
    main()
