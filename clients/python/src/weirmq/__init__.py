"""Client of weir, a durable stream queue over HTTP.

:class:`Client` and :class:`AsyncClient` have the same calls and follow the same rules:
publish, diff, follow, claim, ack, nack, extend, and work, which does the last four for you.
Every error is a :class:`WeirError` with ``code``, ``status`` and ``message``.
"""

from ._async import AsyncClient, AsyncWorker
from ._errors import Unexpected, Unreachable, WeirError
from ._follow import CaughtUp, Event, TopicDeleted
from ._sync import Client, Worker
from ._types import NO_KEY, Gap, Job, Message, Page, Published, Record, Settled
from ._work import Nack, WorkSummary, retry_delay

__all__ = [
    "NO_KEY",
    "AsyncClient",
    "AsyncWorker",
    "CaughtUp",
    "Client",
    "Event",
    "Gap",
    "Job",
    "Message",
    "Nack",
    "Page",
    "Published",
    "Record",
    "Settled",
    "TopicDeleted",
    "Unexpected",
    "Unreachable",
    "WeirError",
    "WorkSummary",
    "Worker",
    "retry_delay",
]
__version__ = "0.1.0"
