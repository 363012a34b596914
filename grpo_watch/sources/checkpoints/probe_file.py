"""Reads the callback's probe files: bounded lines, validated one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from grpo_watch.engine.records import Cursor, Scalar
from grpo_watch.sources.base import Skip, SourceStats
from grpo_watch.sources.files.tail import SplitLine, Tail

SCHEMA = "probe/1"
MOST_TENSORS = 100_000
"""Most tensors of one line; no model has more."""
MODULUS = 1 << 64

SAMPLED: Mapping[str, str] = MappingProxyType(
    {
        "temperature": "temperature",
        "model_temperature": "model_temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "do_sample": "do_sample",
        "seed": "request_seed",
    }
)
"""The callback's names of sampling settings, and the settings."""


Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Moment: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1 << 62)]
"""Unix seconds by the clock of the machine that wrote them; 0: unknown."""


class ProbeStart(msgspec.Struct, frozen=True):
    """A process began to train: its rank, the number of processes, random seed, arguments, sampling settings."""

    rank: Natural = 0
    ranks: Natural = 0
    seed: int | None = None
    framework: str | None = None
    settings: dict[str, Any] = {}
    sampling: object = None
    time: Moment = 0.0


class ProbedTensor(msgspec.Struct, frozen=True, array_like=True):
    """One process's part of a tensor, with the shape of the whole tensor.

    ``checksum`` is empty for a shard without elements. ``parts`` shards make up the whole; 0: unknown to the probe.
    ``copy`` numbered the replicas in earlier versions.
    """

    dtype: str
    shape: tuple[int, ...]
    checksum: str
    copy: int
    parts: int

    def __post_init__(self) -> None:
        """Check the checksum.

        Raises:
            ValueError: it is no number.
        """
        int(self.checksum or "0", 16)

    @property
    def value(self) -> int | None:
        """The checksum as a number; None for a shard without elements."""
        return int(self.checksum, 16) % MODULUS if self.checksum else None


class ProbedWeights(msgspec.Struct, frozen=True):
    """Checksums taken by one process. ``unread``: the tensors that it could not read, and why."""

    of: Literal["policy", "frozen"]
    tensors: Annotated[dict[str, ProbedTensor], msgspec.Meta(max_length=MOST_TENSORS)]
    step: Natural = 0
    rank: Natural = 0
    ranks: Natural = 1
    writers: Natural = 1
    unread: str = ""
    time: Moment = 0.0


class ProbeFailure(msgspec.Struct, frozen=True):
    """The probe could not read the weights and has stopped."""

    step: Natural = 0
    text: str = ""


ProbeLine: TypeAlias = ProbeStart | ProbedWeights | ProbeFailure
KINDS: Mapping[object, type[ProbeLine]] = MappingProxyType(
    {"start": ProbeStart, "weights": ProbedWeights, "error": ProbeFailure}
)


class _Head(msgspec.Struct):
    grpo_watch: object = None
    kind: object = None


def read_line(data: bytes) -> ProbeLine | None:
    """Return the parsed line; None for another schema or kind.

    Raises:
        ValueError: it is no JSON object, or lacks a required field.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.grpo_watch != SCHEMA or not isinstance(head.kind, str) or head.kind not in KINDS:
            return None
        return msgspec.json.decode(data, type=KINDS[head.kind])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def sampled(sampling: object) -> dict[str, Scalar]:
    """Return the settings in the callback's sampling parameters."""
    return {
        SAMPLED[name]: value
        for name, value in (sampling.items() if isinstance(sampling, dict) else ())
        if name in SAMPLED and isinstance(value, bool if name == "do_sample" else (int, float))
    }


AHEAD = 8
"""Lines of a process held at once; while they wait for others, no more are read (up to 190 kB each)."""
ONE_STEP = 120.0
"""Seconds between two lines of one step from which they belong to two starts of the job, which reloads its model.
Processes end a step together."""


class PendingLine(NamedTuple):
    """A line that waits for other processes, and the state from which reading continues with it."""

    resume: Mapping[str, Scalar]
    line: ProbedWeights


def of_same_number(one: ProbedWeights, other: ProbedWeights) -> bool:
    """Whether two lines name one step, whenever they were written."""
    return (one.ranks, one.step, one.of) == (other.ranks, other.step, other.of)


def of_one_step(one: ProbedWeights, other: ProbedWeights) -> bool:
    """Whether two processes of one job took these checksums at one step."""
    return of_same_number(one, other) and abs(one.time - other.time) <= ONE_STEP


class ProcessFile:
    """The lines of one process, at most ``AHEAD`` of them at once.

    ``failed``: why reading stopped, until it continues; ``unread``: tensors that the newest line lacks; ``lines``:
    lines read; ``paused``: there may be more lines, read once fewer are held. ``apart``: it wrote a step at another
    time than the first process, in another start or by a wrong clock, and has joined none since.
    """

    def __init__(self, path: Path, roots: Sequence[Path], key: str, state: Mapping[str, Scalar]) -> None:
        self.key, self.failed, self.unread, self.lines = key, "", "", 0
        self.held: deque[PendingLine] = deque()
        identity, position = state.get(f"{key} identity"), state.get(f"{key} position")
        at = Cursor(key, identity, position) if isinstance(identity, str) and isinstance(position, int) else None
        self.tail = Tail(path, roots, at)
        self._reading: Iterator[SplitLine] | None = None
        self._last = self.apart = False

    @property
    def paused(self) -> bool:
        """Whether there may be more lines to read at once."""
        return self._reading is not None

    def read(self, stats: SourceStats, *, last: bool) -> Iterator[ProbeStart]:
        """Read new lines; starts are yielded, weights are held."""
        if self._reading is None:
            self._reading = self.tail.finish() if last else self.tail.read()
        elif last and not self._last:
            self._reading = chain(self._reading, self.tail.finish())
        self._last = last
        while len(self.held) < AHEAD:
            line = next(self._reading, None)
            if line is None:
                self._reading = None
                return
            self.lines += 1
            yield from self._read_line(line, stats)

    def state(self) -> Mapping[str, Scalar]:
        """Where reading continues: with the first held line."""
        return self.held[0].resume if self.held else self._resume(self.tail.cursor(self.key))

    def drop_before(self, now: ProbedWeights) -> None:
        """Drop lines before the clock's current one, which nothing can join any more.

        A process may have missed starts of the job, or written a step that the first one never reached.
        """
        while self.held and not of_one_step(self.held[0].line, now) and _order(self.held[0].line) < _order(now):
            self.apart = of_same_number(self.held.popleft().line, now) or self.apart
        if self.held and of_same_number(self.held[0].line, now):
            self.apart = not self.joins(now)

    def joins(self, now: ProbedWeights) -> bool:
        """Whether the first held line is of the clock's step."""
        return bool(self.held) and of_one_step(self.held[0].line, now)

    def _read_line(self, line: SplitLine, stats: SourceStats) -> Iterator[ProbeStart]:
        if line.too_long:
            size = line.end - line.start
            stats.skip(Skip.TOO_LONG, f"{self.tail.path.name}, line {self.lines}: {size} bytes")
            self.unread = f"{self.tail.path.name}: line {self.lines} is too long to be read ({size} bytes)"
            return
        if not line.data.strip():
            return
        try:
            found = read_line(line.data)
        except ValueError as error:
            stats.skip(Skip.BAD_VALUE, f"{self.tail.path.name}, line {self.lines}: {error}")
            return
        if isinstance(found, ProbeStart):
            self.failed = ""
            yield found
        elif isinstance(found, ProbeFailure):
            self.failed = f"{self.tail.path.name}: the probe stopped after step {found.step}: {found.text[:300]}"
        elif found is not None:
            self._hold(line, found)

    def _hold(self, line: SplitLine, found: ProbedWeights) -> None:
        self.failed = ""
        name, unread = self.tail.path.name, found.unread[:300]
        self.unread = f"{name}: step {found.step} could not be read: {unread}" if unread else ""
        self.held.append(PendingLine(self._resume(self.tail.before(self.key, line)), found))

    def _resume(self, at: Cursor) -> Mapping[str, Scalar]:
        return {f"{self.key} identity": at.identity, f"{self.key} position": at.position}


def _order(line: ProbedWeights) -> tuple[float, int, bool]:
    """Return a key that grows from line to line of one process."""
    return line.time, line.step, line.of == "frozen"
