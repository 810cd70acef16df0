"""Workers on a real server, WEIR_URL: heartbeats, failures, draining, and the lease of the dead."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

import kit

import weirmq
from weirmq import _calls

LEASE_MS = 1500  # short, for leases that are to end or to be extended


class Running:
    """A worker of either kind in a thread, ended with the test."""

    def __init__(self, test: Any, topic: str, handler: Callable[[weirmq.Job], Any], **options: Any) -> None:
        self.summary: weirmq.WorkSummary | None = None
        self.error: BaseException | None = None
        self._ready = threading.Event()
        self._asynchronous = test.kind is kit.Blocking
        self._topic, self._handler, self._options = topic, handler, options
        self._url = options.pop("url", kit.URL)
        self._thread = threading.Thread(target=self._main)
        self._thread.start()
        self._ready.wait()
        test.addCleanup(self.stop)

    def _main(self) -> None:
        try:
            if self._asynchronous:
                asyncio.run(self._async_main())
            else:
                with weirmq.Client(self._url) as weir:
                    worker = weir.worker(self._topic, self._handler, **self._options)
                    self._stop: Callable[[], Any] = worker.stop
                    self._ready.set()
                    self.summary = worker.run()
        except BaseException as error:
            self.error = error
        finally:
            self._ready.set()

    async def _async_main(self) -> None:
        async def handler(job: weirmq.Job) -> None:
            await asyncio.to_thread(self._handler, job)

        loop = asyncio.get_running_loop()
        async with weirmq.AsyncClient(self._url) as weir:
            worker = weir.worker(self._topic, handler, **self._options)
            self._stop = lambda: loop.is_closed() or loop.call_soon_threadsafe(worker.stop)
            self._ready.set()
            self.summary = await worker.run()

    def stop(self) -> Any:
        """Stops the worker and returns what it did."""
        self._stop()
        return self.join()

    def join(self) -> Any:
        self._thread.join()
        return self.summary


@kit.pair
class Working(kit.Case):
    def queue(self: Any, *items: Any, **config: Any) -> str:
        self.weir = self.client()
        topic = kit.name("work")
        self.weir.put_topic(topic, type="queue", **config)
        if items:
            self.weir.publish_batch(topic, items)
        return topic

    def empty(self: Any, topic: str) -> None:
        kit.eventually("the queue to be empty", lambda: self.weir.topic(topic)["count"] == 0)

    def test_every_job_is_done_once_by_several_at_a_time(self: Any) -> None:
        topic, seen, at_once = self.queue(*range(50)), list[int](), threading.Barrier(4)

        def handle(job: weirmq.Job) -> None:
            if job.data < 4:
                at_once.wait(60)  # all four have to be here
            seen.append(job.data)

        worker = Running(self, topic, handle, concurrency=4)
        self.empty(topic)
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=50, acked=50))
        self.assertEqual(sorted(seen), list(range(50)))

    def test_what_is_done_is_settled_while_another_job_of_its_claim_runs(self: Any) -> None:
        topic, end = self.queue(*range(8)), threading.Event()
        self.addCleanup(end.set)
        worker = Running(self, topic, lambda job: job.data < 7 or end.wait(), concurrency=8)
        kit.eventually("seven acks", lambda: self.weir.topic(topic)["count"] == 1)
        end.set()
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=8, acked=8))

    def test_a_worker_that_waits_gets_what_comes(self: Any) -> None:
        topic = self.queue()
        worker = Running(self, topic, lambda job: None)
        for i in range(3):
            self.weir.publish(topic, i)
            self.empty(topic)
        self.assertEqual(worker.stop().acked, 3)

    @kit.steadily
    def test_a_job_longer_than_its_lease_stays_with_its_worker(self: Any) -> None:
        topic, begun, end = self.queue("long"), list[int](), threading.Event()
        self.addCleanup(end.set)

        def handle(job: weirmq.Job) -> None:
            begun.append(job.deliveries)
            end.wait()

        workers = [Running(self, topic, handle, lease_ms=LEASE_MS) for _ in range(2)]
        kit.eventually("the job to begin", lambda: begun)
        time.sleep(2.5 * LEASE_MS / 1000)  # several leases
        end.set()
        self.empty(topic)
        self.assertEqual((begun, sum(w.stop().acked for w in workers)), ([1], 1))

    def test_a_failure_comes_again_after_its_delay(self: Any) -> None:
        topic, times = self.queue("x"), list[float]()

        def handle(job: weirmq.Job) -> None:
            times.append(time.monotonic())
            if job.deliveries == 1:
                raise ValueError("the first time")
            if job.deliveries == 2:
                raise weirmq.Nack(delay_ms=300)

        with self.assertLogs("weirmq", "ERROR") as logs:
            worker = Running(self, topic, handle, delay=lambda job, error: 200)
            self.empty(topic)
        self.assertIn("the first time", logs.output[0])
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=3, acked=1, nacked=2))
        self.assertGreaterEqual(times[1] - times[0], 0.2)
        self.assertGreaterEqual(times[2] - times[1], 0.3)

    def test_a_delay_that_is_no_whole_number_ends_no_worker(self: Any) -> None:
        topic = self.queue("nack", "delay", "good")

        def handle(job: weirmq.Job) -> None:
            if job.deliveries == 1 and job.data == "nack":
                raise weirmq.Nack(delay_ms=2.5)  # type: ignore[arg-type]
            if job.deliveries == 1 and job.data == "delay":
                raise ValueError("doubled too often")

        with self.assertLogs("weirmq", "ERROR"):
            worker = Running(self, topic, handle, delay=lambda job, error: 2**70)
            kit.eventually("the others to be done", lambda: self.weir.topic(topic)["count"] == 1)
        kit.eventually("the day to begin", lambda: self.weir.topic(topic)["queue"]["delayed"] == 1)
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=4, acked=2, nacked=2))

    def test_after_the_queues_limit_a_job_is_a_dead_letter(self: Any) -> None:
        letters = kit.name("dead")
        topic = self.queue("poison", "good", max_deliveries=2, dead_letter=letters)

        def handle(job: weirmq.Job) -> None:
            if job.data == "poison":
                raise weirmq.Nack

        worker = Running(self, topic, handle)
        self.empty(topic)
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=3, acked=1, nacked=2))
        (dead,) = self.weir.diff(letters).records
        self.assertEqual((dead.data, dead.meta["$dead_letter_deliveries"]), ("poison", "2"))

    @kit.steadily
    def test_a_stop_finishes_what_is_held_and_takes_nothing_more(self: Any) -> None:
        topic, begun, end, done = self.queue(*range(5)), list[int](), threading.Event(), list[int]()
        self.addCleanup(end.set)

        def handle(job: weirmq.Job) -> None:
            begun.append(job.seq)
            end.wait()
            done.append(job.seq)

        worker = Running(self, topic, handle, concurrency=2, lease_ms=LEASE_MS)
        kit.eventually("two jobs to begin", lambda: len(begun) == 2)
        worker._stop()
        time.sleep(1.5 * LEASE_MS / 1000)  # the leases are extended meanwhile
        self.assertEqual((len(begun), worker.summary), (2, None))
        end.set()
        self.assertEqual(worker.join(), weirmq.WorkSummary(claimed=2, acked=2))
        state = self.weir.topic(topic)
        self.assertEqual((sorted(done), state["count"], state["queue"]["ready"]), ([1, 2], 3, 3))

    def test_a_stop_ends_a_claim_that_waits(self: Any) -> None:
        topic = self.queue()
        worker = Running(self, topic, lambda job: None)
        time.sleep(0.3)
        began = time.monotonic()
        self.assertEqual(worker.stop(), weirmq.WorkSummary())
        self.assertLess(time.monotonic() - began, 10)  # not the 30 s of the claim
        self.weir.publish(topic, 1)
        self.assertEqual(len(self.weir.claim(topic)), 1)

    @kit.steadily
    def test_a_lease_that_was_lost_is_known_to_the_handler(self: Any) -> None:
        topic, held, gone = self.queue("x"), list[weirmq.Job](), threading.Event()

        def handle(job: weirmq.Job) -> None:
            held.append(job)
            if len(held) == 1:
                kit.eventually("the lease to be lost", lambda: job.lost)
                gone.set()

        worker = Running(self, topic, handle, concurrency=2, lease_ms=LEASE_MS)
        kit.eventually("the job to begin", lambda: held)
        self.weir.nack(held[0])  # as if the lease had ended
        self.assertTrue(gone.wait(60))
        self.empty(topic)
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=2, acked=1, lost=1))

    def test_a_job_that_comes_again_ends_the_first_handler_of_it(self: Any) -> None:
        topic, held, gone = self.queue("x"), list[weirmq.Job](), threading.Event()

        def handle(job: weirmq.Job) -> None:
            held.append(job)
            if len(held) == 1:
                kit.eventually("the lease to be lost", lambda: job.lost)
                gone.set()

        worker = Running(self, topic, handle, concurrency=2, lease_ms=3_600_000)  # no heartbeat tells
        kit.eventually("the job to begin", lambda: held)
        self.weir.nack(held[0])
        self.assertTrue(gone.wait(60))
        self.empty(topic)
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=2, acked=1, lost=1))

    def test_a_refusal_ends_the_worker_after_what_it_holds(self: Any) -> None:
        worker = Running(self, kit.name("absent"), lambda job: None)
        worker.join()
        self.assertIsInstance(worker.error, weirmq.WeirError)
        self.assertEqual(worker.error.code, "topic_not_found")

    def test_a_worker_needs_a_place_and_a_lease(self: Any) -> None:
        for options in ({"concurrency": 0}, {"lease_ms": 99}):
            with self.assertRaises(ValueError):
                self.client().worker("q", print, **options)


class Fake:
    """A server that hands out its jobs at the first claim and then answers as its attributes say."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.jobs = [1]
        self.claim: Callable[[], Any] = lambda: {"claimed": []}
        self.ack: Callable[[], Any] = lambda: {"acked": 1, "skipped": []}
        self.extend: Callable[[], Any] = lambda: {"extended": 1, "skipped": []}

    def __call__(self, verb: str, body: dict[str, Any]) -> Any:
        self.calls.append((verb, body))
        if verb == "claim" and self.jobs:
            jobs, self.jobs = self.jobs, []
            return {"claimed": [{"$seq": n, "lease_id": f"lease_{n}"} for n in jobs]}
        if verb == "claim":
            time.sleep(0.02)  # a server waits for jobs
            return self.claim()
        return {"ack": self.ack, "nack": lambda: {"nacked": 1, "skipped": []}, "extend": self.extend}[verb]()

    def bodies(self, verb: str) -> list[dict[str, Any]]:
        return [body for called, body in list(self.calls) if called == verb]


@kit.pair
class Answers(kit.Case):
    """Workers of a server whose answers are made up."""

    def worker(self: Any, fake: Fake, handler: Callable[[weirmq.Job], Any], **options: Any) -> Running:
        server = kit.serving(fake)
        self.addCleanup(server.__exit__, None, None, None)
        return Running(self, "q", handler, url=server.__enter__(), **options)

    def until_lost(self: Any, job: weirmq.Job) -> None:
        kit.eventually("the lease to be lost", lambda: job.lost)

    def test_a_refused_extension_ends_the_worker_and_tells_its_handlers(self: Any) -> None:
        fake = Fake()
        fake.extend = lambda: kit.refusal(403, "forbidden")  # the key was changed
        worker = self.worker(fake, self.until_lost, lease_ms=100)
        worker.join()
        self.assertEqual((getattr(worker.error, "code", worker.error), fake.bodies("ack")), ("forbidden", []))

    def test_an_extension_that_failed_is_made_again(self: Any) -> None:
        fake, answers = Fake(), [kit.refusal(503, "not_ready"), None, kit.refusal(500, "internal")]
        fake.extend = lambda: answers.pop(0) if answers else {"extended": 1, "skipped": []}
        handle = lambda job: kit.eventually("extensions", lambda: len(fake.bodies("extend")) > 4)
        worker = self.worker(fake, handle, lease_ms=200)
        kit.eventually("an ack", lambda: fake.bodies("ack"))
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=1, acked=1))

    def test_after_a_lost_connection_it_asks_for_its_leases_at_once(self: Any) -> None:
        fake = Fake()
        fake.claim = lambda: None
        fake.extend = lambda: {"extended": 0, "skipped": [1]}  # the server has been restarted
        worker = self.worker(fake, self.until_lost, lease_ms=3_600_000, concurrency=2)
        kit.eventually("an extension", lambda: fake.bodies("extend"))
        fake.claim = lambda: {"claimed": []}
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=1, lost=1))
        self.assertEqual(fake.bodies("ack"), [])

    def test_a_claim_whose_answer_was_lost_is_followed_by_a_small_one_and_those_by_larger_ones(self: Any) -> None:
        fake, end = Fake(), threading.Event()
        self.addCleanup(end.set)
        fake.jobs = []

        def claim() -> Any:
            most, made = fake.bodies("claim")[-1]["max"], sum(b["max"] for b in fake.bodies("claim")[1:-1])
            if len(fake.bodies("claim")) == 1:
                return None
            return {"claimed": [{"$seq": n, "lease_id": f"lease_{n}"} for n in range(made, made + most)]}

        fake.claim = claim
        with mock.patch.object(_calls, "CALL_TIMEOUT", 3600.0):  # what a quick answer is measured by
            worker = self.worker(fake, lambda job: end.wait(), lease_ms=86_400_000, concurrency=8)
            kit.eventually("it holds all it may", lambda: sum(b["max"] for b in fake.bodies("claim")) == 16)
        self.assertEqual([b["max"] for b in fake.bodies("claim")], [8, 1, 2, 4, 1])
        end.set()
        fake.claim = lambda: {"claimed": []}
        worker.stop()

    def test_a_refused_ack_ends_the_worker(self: Any) -> None:
        fake = Fake()
        fake.ack = lambda: kit.refusal(403, "forbidden")
        worker = self.worker(fake, lambda job: None, lease_ms=3_600_000)
        worker.join()
        self.assertEqual((getattr(worker.error, "code", worker.error), len(fake.bodies("ack"))), ("forbidden", 1))

    def test_an_ack_is_made_again_until_the_lease_has_ended(self: Any) -> None:
        fake = Fake()
        fake.ack = fake.extend = lambda: None
        worker = self.worker(fake, lambda job: None, lease_ms=300)
        kit.eventually("several tries", lambda: len(fake.bodies("ack")) > 1)
        kit.eventually("another claim", lambda: len(fake.bodies("claim")) > 1)
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=1, lost=1))

    def test_a_lease_that_ends_behind_its_handler_keeps_no_worker_from_its_end(self: Any) -> None:
        fake, acking, done, over = Fake(), threading.Event(), threading.Event(), threading.Event()
        gone, fake.jobs = list[int](), [1, 2]

        def ack() -> Any:
            acking.set()
            over.wait()
            return {"acked": 1, "skipped": []}

        def extend() -> Any:
            if not done.is_set():
                return {"extended": 2, "skipped": []}
            gone.append(1)
            if len(gone) == 2:  # so the first of these answers has been taken in
                over.set()
            return {"extended": 1, "skipped": [2]}

        def handle(job: weirmq.Job) -> None:
            if job.seq == 2:
                acking.wait()
                done.set()

        fake.ack, fake.extend = ack, extend
        worker = self.worker(fake, handle, concurrency=2, lease_ms=200)
        kit.eventually("both to be settled", lambda: over.is_set())
        self.assertEqual(worker.stop(), weirmq.WorkSummary(claimed=2, acked=1, lost=1))
        self.assertEqual([b["seqs"] for b in fake.bodies("ack")], [[1]])

    def test_an_answer_that_cannot_be_understood_ends_the_worker(self: Any) -> None:
        for verb in ("ack", "extend"):
            fake = Fake()
            setattr(fake, verb, lambda: {"acked": 1, "extended": 1, "skipped": [[1]]})
            extended = lambda job: verb == "ack" or kit.eventually("an extension", lambda: fake.bodies("extend"))
            worker = self.worker(fake, extended, lease_ms=100 if verb == "extend" else 3_600_000)
            worker.join()
            self.assertIsInstance(worker.error, TypeError, verb)

    def test_a_failed_job_is_delayed_as_the_worker_says_and_without_that_by_a_second(self: Any) -> None:
        def handle(job: weirmq.Job) -> None:
            raise ValueError("no")

        for delay, least, most in ((lambda job, error: 7, 7, 7), (None, 500, 1000)):
            fake = Fake()
            with self.assertLogs("weirmq", "ERROR"):
                worker = self.worker(fake, handle, delay=delay)
                kit.eventually("a nack", lambda: fake.bodies("nack"))
                worker.stop()
            (nack,) = fake.bodies("nack")
            self.assertTrue(least <= nack["delay_ms"] <= most, nack)

    def test_a_handler_that_wants_an_end_gets_it_and_gives_its_job_back(self: Any) -> None:
        def handle(job: weirmq.Job) -> None:
            raise SystemExit(3)

        fake = Fake()
        worker = self.worker(fake, handle)
        worker.join()
        self.assertIsInstance(worker.error, SystemExit)
        self.assertEqual(([b.get("started", True) for b in fake.bodies("nack")], fake.bodies("ack")), ([True], []))


class Handlers(unittest.TestCase):
    def test_an_asynchronous_handler_ends_a_worker_of_threads_and_nothing_is_acked(self) -> None:
        async def handle(job: weirmq.Job) -> None:
            pass

        with weirmq.Client(kit.URL) as weir:
            topic = kit.name("handlers")
            weir.put_topic(topic, type="queue")
            weir.publish(topic, "x")
            with self.assertRaisesRegex(TypeError, "AsyncClient"):
                weir.work(topic, handle)
            self.assertEqual(weir.claim(topic, max=1)[0].data, "x")

    def test_a_plain_function_in_an_asynchronous_worker_does_each_job_once(self) -> None:
        async def main() -> None:
            async with weirmq.AsyncClient(kit.URL) as weir:
                topic = kit.name("plain")
                seen: list[object] = []
                await weir.put_topic(topic, type="queue")
                for n in range(3):
                    await weir.publish(topic, n)
                worker = weir.worker(topic, lambda job: seen.append(job.data))  # type: ignore[arg-type,return-value]
                running = asyncio.create_task(worker.run())
                while len(seen) < 3:
                    await asyncio.sleep(0.01)
                worker.stop()
                self.assertEqual((await running).acked, 3)
                self.assertEqual(sorted(seen), [0, 1, 2])

        asyncio.run(main())

    def test_what_cannot_be_called_is_refused(self) -> None:
        for handler in (None, "handle", 5):
            with weirmq.Client(kit.URL) as weir, self.assertRaises(TypeError):
                weir.worker("jobs", handler)  # type: ignore[arg-type]


class Cancelling(unittest.TestCase):
    def test_an_interrupted_work_gives_its_jobs_back_at_once(self) -> None:
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        topic, begun, end = kit.name("interrupt"), threading.Event(), threading.Event()
        self.addCleanup(end.set)

        def interrupt() -> None:
            begun.wait()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        with weirmq.Client(kit.URL) as weir:
            weir.put_topic(topic, type="queue")
            weir.publish_batch(topic, [1, 2])
            threading.Thread(target=interrupt).start()
            with self.assertRaises(KeyboardInterrupt):
                weir.work(topic, lambda job: begun.set() or end.wait(), concurrency=2, lease_ms=3_600_000, signals=False)
            self.assertEqual(sorted(j.seq for j in weir.claim(topic, max=2)), [1, 2])

    def test_a_cancelled_work_gives_its_jobs_back_at_once(self) -> None:
        async def main() -> None:
            async with weirmq.AsyncClient(kit.URL) as weir:
                topic, begun = kit.name("cancel"), asyncio.Event()
                await weir.put_topic(topic, type="queue")
                await weir.publish(topic, 1)

                async def handle(job: weirmq.Job) -> None:
                    begun.set()
                    await asyncio.Event().wait()

                work = asyncio.create_task(weir.work(topic, handle))
                await begun.wait()
                work.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await work
                (job,) = await weir.claim(topic)
                self.assertEqual(job.deliveries, 2)

        asyncio.run(main())


PROGRAM = """
import asyncio, sys, time, weirmq
def handle(job):
    print("begin", job.seq, flush=True)
    while not open(sys.argv[2]).read():
        time.sleep(0.01)
    print("end", job.seq, flush=True)
async def ahandle(job):
    await asyncio.to_thread(handle, job)
async def main():
    async with weirmq.AsyncClient() as weir:
        return await weir.work(sys.argv[1], ahandle, lease_ms=int(sys.argv[4]))
if sys.argv[3] == "async":
    done = asyncio.run(main())
else:
    done = weirmq.Client().work(sys.argv[1], handle, lease_ms=int(sys.argv[4]))
print("acked", done.acked, flush=True)
"""


class Processes(unittest.TestCase):
    """Workers as processes, which get signals."""

    def setUp(self) -> None:
        self.weir = weirmq.Client(kit.URL)
        self.addCleanup(self.weir.close)
        self.topic = kit.name("process")
        self.weir.put_topic(self.topic, type="queue")
        self.weir.publish_batch(self.topic, [1, 2])
        gate = tempfile.NamedTemporaryFile("w")
        self.addCleanup(gate.close)
        self.gate = gate

    def start(self, kind: str) -> subprocess.Popen[str]:
        p = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, self.topic, self.gate.name, kind, str(LEASE_MS)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"WEIR_URL": kit.URL},
        )
        assert p.stdout is not None
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline(), "begin 1\n")
        return p

    def open_gate(self) -> None:
        self.gate.write("open")
        self.gate.flush()

    @kit.steadily
    def test_sigterm_lets_a_worker_finish_what_it_holds(self) -> None:
        self.finishes("sync")

    @kit.steadily
    def test_sigterm_lets_an_asynchronous_worker_finish_what_it_holds(self) -> None:
        self.finishes("async")

    def finishes(self, kind: str) -> None:
        p = self.start(kind)
        p.send_signal(signal.SIGTERM)
        time.sleep(1.5 * LEASE_MS / 1000)  # it is not dead, and keeps its job
        self.assertEqual((p.poll(), self.weir.topic(self.topic)["queue"]["in_flight"]), (None, 1))
        self.open_gate()
        self.assertEqual(p.communicate(timeout=60)[0], "end 1\nacked 1\n")
        self.assertEqual((p.returncode, self.weir.topic(self.topic)["count"]), (0, 1))

    def test_sigterm_stops_all_workers_of_a_loop(self) -> None:
        other = kit.name("process")
        self.weir.put_topic(other, type="queue")
        program = """
import asyncio, sys, weirmq
async def main():
    async def handle(job):
        print("took", flush=True)
    async with weirmq.AsyncClient() as weir:
        await asyncio.gather(*(weir.work(topic, handle) for topic in sys.argv[1:]))
asyncio.run(main())
"""
        p = subprocess.Popen(
            [sys.executable, "-c", program, self.topic, other],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"WEIR_URL": kit.URL},
        )
        self.addCleanup(p.kill)
        assert p.stdout is not None
        self.assertEqual([p.stdout.readline() for _ in range(2)], ["took\n", "took\n"])
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0)

    def test_a_second_signal_ends_it(self) -> None:
        p = self.start("sync")
        p.send_signal(signal.SIGTERM)
        while p.poll() is None:  # until the first one has been taken
            time.sleep(0.1)
            p.send_signal(signal.SIGTERM)
        self.assertEqual(p.returncode, -signal.SIGTERM)

    def test_the_job_of_a_killed_worker_comes_to_another(self) -> None:
        dead = self.start("sync")
        dead.kill()
        dead.wait()
        self.open_gate()
        jobs = []
        kit.eventually("both jobs", lambda: jobs.extend(self.weir.claim(self.topic, max=2, wait_ms=500)) or len(jobs) == 2)
        self.assertEqual(sorted((j.seq, j.deliveries) for j in jobs), [(1, 2), (2, 1)])


if __name__ == "__main__":
    unittest.main()
