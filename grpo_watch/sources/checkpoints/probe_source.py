"""Turns weights probed by the callback or a training loop into digests, joining the shards of each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import (
    CheckpointDigest,
    CheckpointKind,
    Cursor,
    Item,
    RunConfig,
    Scalar,
    Setting,
    TensorDigest,
)
from grpo_watch.sources.base import ChannelSource
from grpo_watch.sources.checkpoints.probe_file import (
    MODULUS,
    ProbedTensor,
    ProbedWeights,
    ProbeStart,
    ProcessFile,
    sampled,
)
from grpo_watch.sources.settings.config_files import FROM_ARGUMENTS, logged_config


def joined(lines: Sequence[ProbedWeights], *, whole: bool = False) -> dict[str, TensorDigest]:
    """Return the tensors of all lines of one step; with ``whole`` none that lacks shards.

    A tensor with all its shards has its own name, however it is sharded; otherwise each present shard is called
    ``name@rank/ranks``. Of replicas, which earlier versions wrote, the first counts.
    """
    tensors: dict[str, TensorDigest] = {}
    held: dict[str, list[tuple[ProbedWeights, ProbedTensor]]] = {}
    for line in lines:
        for name, entry in line.tensors.items():
            if not entry.copy:
                held.setdefault(name, []).append((line, entry))
    for name, entries in held.items():
        one = entries[0][1]
        if len({(entry.dtype, entry.shape) for _, entry in entries}) == 1 and len(entries) == one.parts:
            tensors[name] = _digest(one, sum(entry.value or 0 for _, entry in entries) % MODULUS)
            continue
        for line, entry in entries if not (whole and one.parts) else ():
            if entry.value is not None:
                tensors[name if line.ranks == 1 else f"{name}@{line.rank}/{line.ranks}"] = _digest(entry, entry.value)
    return tensors


def _digest(entry: ProbedTensor, value: int) -> TensorDigest:
    return TensorDigest(entry.dtype, entry.shape, f"{value:016x}", zero=value == 0)


FILE = re.compile(r"grpo-watch-probe-(\d{1,6})\.jsonl")
KINDS = {"policy": CheckpointKind.PROBE, "frozen": CheckpointKind.FROZEN}
PATIENCE = 2
"""Probes that the first process may be ahead of another before the other is no longer waited for."""


class ProbeSource(ChannelSource):
    """Joins the files of a run's processes by step; the lowest rank's file is the clock.

    A step is emitted once every writing process has reached it, has failed, or is two probes behind. ``stats.problem``
    names the failed ones.
    """

    def _begin(self) -> None:
        self._state: dict[str, Scalar] = dict(self._known)
        self._files: dict[str, ProcessFile] = {}
        self._seeds: dict[int, int] = {}
        self._clocks = ""

    def _new(self, seen: float | None) -> Iterator[Item]:
        yield from self._read(seen, last=False)

    def _rest(self) -> Iterator[Item]:
        yield from self._read(None, last=True)

    def cursor(self) -> Cursor:
        """Where reading continues."""
        state = dict(self._state)
        for file in self._files.values():
            state |= file.state()
        passed = sum(value for key, value in state.items() if key.endswith(" position") and isinstance(value, int))
        return Cursor(self.name, "", passed, state)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.tail.close()

    def _read(self, seen: float | None, *, last: bool) -> Iterator[Item]:
        self._look()
        files = sorted(self._files.values(), key=lambda file: int(file.key))
        read = -1
        while read != sum(file.lines for file in files):
            read = sum(file.lines for file in files)
            yield from self._pieces(files, seen, last=last)
        self.stats.bytes = sum(file.tail.bytes for file in files)
        self.stats.problem = self._problem()

    def _pieces(self, ranks: Sequence[ProcessFile], seen: float | None, *, last: bool) -> Iterator[Item]:
        """Read a piece of each file, and yield the complete steps."""
        for file in ranks:
            for line in file.read(self.stats, last=last):
                yield from self._started(line, first=file is ranks[0])
        if ranks:
            yield from self._steps(ranks[0], ranks[1:], seen, last=last)

    def _look(self) -> None:
        """Find the files; more may appear over time."""
        try:
            names = sorted(path.name for path in self._path.iterdir() if FILE.fullmatch(path.name))
        except OSError:
            return  # open files are still read; discovery reports a folder that can't be listed
        for name in names:
            key = name.removeprefix("grpo-watch-probe-").removesuffix(".jsonl")
            if key not in self._files:
                self._files[key] = ProcessFile(self._path / name, self._roots, key, self._state)

    def _steps(
        self, clock: ProcessFile, others: Sequence[ProcessFile], seen: float | None, *, last: bool
    ) -> Iterator[Item]:
        while clock.held:
            now = clock.held[0].line
            for file in others:
                file.drop_before(now)
            writers = [file for file in others if int(file.key) < now.writers]
            if any(file.paused and not file.held for file in writers):
                return  # held lines belong to another start: they are read on first
            silent = [file for file in writers if not file.held and not file.failed]
            missing = now.writers - 1 - len(writers)
            if (silent or missing > 0) and not last and len(clock.held) <= PATIENCE:
                return
            joins = [file for file in others if file.joins(now)]
            lines = [file.held.popleft().line for file in (clock, *joins)]
            apart = [file.tail.path.name for file in writers if file.apart]
            tensors = joined(lines, whole=bool(apart))
            self._clocks = f"{apart[0]}: step {now.step} has another time than in the first process" if apart else ""
            if tensors or (not apart and any(not line.unread for line in lines)):
                yield self._digest(lines[0], tensors, seen)

    def _digest(self, first: ProbedWeights, tensors: dict[str, TensorDigest], seen: float | None) -> CheckpointDigest:
        return CheckpointDigest(
            channel=self.name,
            step=first.step,
            path=f"step {first.step} in memory",
            complete=True,
            tensors=tensors,
            kind=KINDS[first.of],
            segment=self.segment,
            seen=seen,
        )

    def _started(self, start: ProbeStart, *, first: bool) -> Iterator[Item]:
        """Yield the first process's settings, and whether the random seeds of all processes are the same."""
        origin = "the callback"
        if first:
            self._seeds = {}
            raw: dict[str, Any] = {"world_size": start.ranks, **start.settings}
            logged = logged_config(raw, origin, self.name, self.segment)
            settings = {} if logged is None else dict(logged.settings)
            settings["world_size"] = Setting(start.ranks, origin)
            settings |= {name: Setting(value, origin) for name, value in sampled(start.sampling).items()}
            yield RunConfig(start.framework, None, settings, self.name, self.segment, FROM_ARGUMENTS)
        if start.seed is not None:
            self._seeds[start.rank] = start.seed
        if len(self._seeds) > 1 and len(self._seeds) == min(start.ranks, len(self._files)):
            same = Setting("same" if len(set(self._seeds.values())) == 1 else "different", origin)
            yield RunConfig(None, None, {"rank_seeds": same}, self.name, self.segment, FROM_ARGUMENTS)

    def _problem(self) -> str:
        for file in self._files.values():
            if file.failed or file.tail.problem or file.unread:
                return file.failed or file.tail.problem or file.unread
        return self._clocks
