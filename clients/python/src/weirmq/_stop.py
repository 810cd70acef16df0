"""SIGTERM and SIGINT stop every worker of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_stops: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], None]]] = WeakKeyDictionary()


@contextlib.contextmanager
def on_signals(stop: Callable[[], None], enabled: bool) -> Iterator[None]:
    """Calls ``stop`` at the first of the signals; the next one has its usual effect.

    Does nothing outside the main thread, where signals do not arrive.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    stops = _stops.setdefault(loop, [])
    stops.append(stop)
    if len(stops) == 1:
        before = _install(loop, stops)
        _undo[loop] = before
    try:
        yield
    finally:
        stops.remove(stop)
        if not stops:
            _undo.pop(loop)()


_undo: WeakKeyDictionary[asyncio.AbstractEventLoop, Callable[[], None]] = WeakKeyDictionary()


def _install(loop: asyncio.AbstractEventLoop, stops: list[Callable[[], None]]) -> Callable[[], None]:
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def stop_all() -> None:
        restore()
        for stop in list(stops):
            stop()

    for number in _SIGNALS:
        try:
            loop.add_signal_handler(number, stop_all)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop_all))
    return restore
