"""Queries to a wandb server and their results: plain values between the client's process and ours."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import RunConfig
from grpo_watch.errors import UsageError
from grpo_watch.extras import install
from grpo_watch.sources.completions.summarise import Grouping

SCHEME = "wandb://"
PART = re.compile(r"[^/\s?#%\x00-\x1f\x7f]{1,128}")
OVER = frozenset({"finished", "crashed", "failed", "killed", "preempted"})
"""States of a run that is no longer logged (wandb 0.31)."""


class RemotePlace(Struct, frozen=True, order=True):
    """A project on a wandb server (``run`` empty), or one run of it by its id."""

    entity: str
    project: str
    run: str = ""

    def __str__(self) -> str:
        return SCHEME + "/".join(part for part in (self.entity, self.project, self.run) if part)


def is_remote(text: str) -> bool:
    """Whether the user's path is a place on a wandb server."""
    return text.startswith(SCHEME)


def parse_place(text: str) -> RemotePlace:
    """Parse ``wandb://entity/project[/run]``.

    Raises:
        UsageError: it has another form.
    """
    parts = text.removeprefix(SCHEME).rstrip("/").split("/")
    if not is_remote(text) or len(parts) not in {2, 3} or not all(map(PART.fullmatch, parts)):
        raise UsageError(f"{text}: write wandb://ENTITY/PROJECT or wandb://ENTITY/PROJECT/RUN-ID")
    return RemotePlace(*parts)


class ServerTrouble(Enum):
    """Why the server gave no result, in words for people."""

    NO_CLIENT = f"wandb's client is not installed: {install('wandb')}"
    NO_KEY = "no API key for this server: set WANDB_API_KEY or run `wandb login`"
    REFUSED = "the server refuses the API key: it expired, was revoked, or may not read this project"
    GONE = "no such run or project, or it was deleted, or this key can't see it"
    LIMITED = "the server limits the rate of requests; asked less often"
    TIMEOUT = "the server did not answer in time; asked again later"
    FAILED = "the server's answer can't be used; asked again later"
    TOO_MUCH = "the server sends more than is read; check wandb.base_url, or watch the run's files instead"


LASTING = frozenset({ServerTrouble.NO_CLIENT, ServerTrouble.NO_KEY, ServerTrouble.REFUSED, ServerTrouble.GONE})
"""Troubles that don't pass by themselves in a moment: reported at once, retried seldom."""


class RemoteError(Exception):
    """The server gave no usable result. ``detail`` is one line without any secret; ``requests`` were spent."""

    def __init__(self, trouble: ServerTrouble, detail: str = "", requests: int = 1) -> None:
        super().__init__(trouble, detail, requests)
        self.trouble, self.detail, self.requests = trouble, detail, requests

    def __str__(self) -> str:
        return f"{self.trouble.value}{f' ({self.detail})' if self.detail else ''}"


class RunInfo(NamedTuple):
    """A run as the server lists it. ``created`` and ``heartbeat`` are the server's Unix seconds (0: unknown)."""

    id: str
    name: str
    state: str
    created: float
    heartbeat: float


class TableRef(NamedTuple):
    """The file of a completion table, and its size in bytes."""

    path: str
    size: int


class LoggedCall(NamedTuple):
    """One logged call: wandb's counter, keys and plain values, Unix seconds, its table of completions.

    The table is first its file, then its content; a text is the reason why it can't be read.
    """

    order: int
    row: Mapping[str, object]
    time: float | None
    table: TableRef | Grouping | str | None = None


class LoggedCalls(NamedTuple):
    """The calls from one counter on, in order. ``after`` is where to continue, ``last`` the newest counter."""

    rows: tuple[LoggedCall, ...]
    after: int
    last: int


class RunDetails(NamedTuple):
    """A run's reduced configuration (None: no key is known).

    ``one_per_prompt``: its tables hold only one completion of each prompt.
    """

    info: RunInfo
    config: RunConfig | None
    one_per_prompt: bool


class RunNews(NamedTuple):
    """A run's details and next calls, with reduced tables; ``at_end``: there are no more for now."""

    details: RunDetails
    calls: LoggedCalls

    @property
    def at_end(self) -> bool:
        """Whether all data on the server was read."""
        return self.calls.after > self.calls.last
