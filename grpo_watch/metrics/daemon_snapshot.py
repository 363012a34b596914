"""The immutable snapshot of everything the daemon watches, made by the engine's thread and read by all outputs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grpo_watch.engine.snapshot import RunSnapshot

ENGINE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds, in seconds, of the histogram of engine turns."""


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """One kind of channel of one run. ``read_at``: when its full content was last read (Unix seconds; None: never)."""

    source: str
    up: bool
    read_at: float | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RunOverview:
    """One run. ``ended`` is when it ended (Unix seconds), None while it continues; ``active``: it is being written.

    ``lost``: its files are gone without a sign of its end. ``labels`` are the user's; they go on ``grpo_run_info``
    only. ``slug`` names the run in the API's paths. ``folder`` is the run's own folder, if it is on disk.
    """

    snapshot: RunSnapshot
    slug: str
    active: bool
    ended: float | None = None
    lost: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    channels: tuple[ChannelStatus, ...] = ()
    folder: Path | None = None

    @property
    def last_step_time(self) -> float | None:
        """When the newest step was logged (Unix seconds), None if unknown.

        A row without a time counts as logged when it was read, which for a copied run is after its end.
        """
        logged = self.snapshot.last_step_time
        return logged if logged is None or self.ended is None else min(logged, self.ended)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of observations per bucket of ``ENGINE_BUCKETS``, the last for all above, and their sum in seconds."""

    counts: tuple[int, ...] = (0,) * (len(ENGINE_BUCKETS) + 1)
    sum: float = 0.0

    def plus(self, seconds: float) -> Histogram:
        """The histogram with one more observation."""
        at = bisect_left(ENGINE_BUCKETS, seconds)
        counts = (count + (place == at) for place, count in enumerate(self.counts))
        return Histogram(tuple(counts), self.sum + seconds)


@dataclass(frozen=True, slots=True)
class DaemonSnapshot:
    """Everything at one moment: the runs, and the state of the watcher itself.

    ``records`` counts by channel kind, ``errors`` by channel kind and reason; ``problems`` are one-line texts for
    people. ``past`` are runs that ended a while ago: on the page, not on ``/metrics``. ``page`` is the status page's
    address, or empty. ``state_bytes`` None: no state is kept. ``deliveries`` counts messages by receiver and outcome,
    ``queues`` waiting ones by receiver; ``troubled`` are the failing receivers.
    """

    runs: tuple[RunOverview, ...] = ()
    records: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    state_bytes: int | None = None
    state_ok: bool = True
    reload_ok: bool = True
    turns: Histogram = Histogram()
    problems: tuple[str, ...] = ()
    deliveries: Mapping[tuple[str, str], int] = field(default_factory=dict)
    queues: Mapping[str, int] = field(default_factory=dict)
    troubled: frozenset[str] = frozenset()
    past: tuple[RunOverview, ...] = ()
    page: str = ""

    @property
    def shown(self) -> tuple[RunOverview, ...]:
        """The runs on the page."""
        return (*self.runs, *self.past)
