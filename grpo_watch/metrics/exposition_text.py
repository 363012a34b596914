"""Exposition text kept by run, so that a scrape renders only the runs that changed since the last one.

A format wants all samples of a family together, while it is runs that change: here each run's text is cut into
families, and the families of all runs are joined. Of a run that goes on, values change and labels don't: the encoder
writes its lines once, and later only the values are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from grpo_watch.metrics.daemon_snapshot import RunOverview

Encoder = Callable[[Collector], bytes]
FamilyLines = Mapping[bytes, bytes]
"""Header of a family (HELP and TYPE lines) → its sample lines."""
Sample = tuple[str, tuple[str, ...], float]
"""Family, label values in the order of its table, value."""

_END = b"# EOF\n"
_FAMILY = re.compile(rb"((?:^# .*\n)+)((?:^[^#].*\n)*)", re.MULTILINE)


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def encoded(encoder: Encoder, families: Iterable[Metric]) -> FamilyLines:
    """The text of some families, by header."""
    return dict(_cut(encoder(_Collected(families)).removesuffix(_END)))


def _cut(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    for family in _FAMILY.finditer(text):
        yield family[1], family[2]


def joined(parts: Iterable[FamilyLines], content_type: str) -> bytes:
    """One document of many parts; families are in the order in which they first come."""
    families: dict[bytes, list[bytes]] = {}
    for part in parts:
        for header, lines in part.items():
            families.setdefault(header, []).append(lines)
    document = b"".join(piece for header, lines in families.items() for piece in (header, *lines))
    return document + _END if content_type.startswith("application/openmetrics-text") else document


def _with_values(text: FamilyLines, samples: Iterable[Sample]) -> FamilyLines:
    """The text with the values of these samples, whose series are the same; families behind theirs stay as they are."""
    values: dict[str, list[float]] = {}
    for name, _, value in samples:
        values.setdefault(name, []).append(value)
    changed = zip(text.items(), values.values(), strict=False)
    return {**text, **{header: b"".join(_valued(lines, mine)) for (header, lines), mine in changed}}


def _valued(lines: bytes, values: Sequence[float]) -> Iterator[bytes]:
    for line, value in zip(lines.split(b"\n")[:-1], values, strict=True):
        yield b"%b %b\n" % (line[: line.rindex(b" ")], floatToGoString(value).encode())  # type: ignore[no-untyped-call]


class _Kept(NamedTuple):
    run: RunOverview
    series: Sequence[object]
    text: FamilyLines


class RunTexts:
    """The newest text of every run in one format."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._kept: dict[str, _Kept] = {}

    def of(
        self,
        runs: Iterable[RunOverview],
        samples: Callable[[RunOverview], Sequence[Sample]],
        families: Callable[[RunOverview, Sequence[Sample]], Iterable[Metric]],
    ) -> list[FamilyLines]:
        """The text of each run, rendered again only if something changed; those that are gone are forgotten.

        ``families`` are those of the samples, in the order in which they first come, and others after them.
        """
        before, self._kept, texts = self._kept, {}, []
        for run in runs:
            kept = before.get(run.snapshot.run)
            if kept is None or not _same(kept.run, run):
                made = samples(run)
                series = [_info(run), *(sample[:2] for sample in made)]
                if kept is not None and kept.series == series:
                    text = _with_values(kept.text, made)
                else:
                    text = encoded(self.encoder, families(run, made))
                kept = _Kept(run, series, text)
            self._kept[run.snapshot.run] = kept
            texts.append(kept.text)
        return texts


def _same(one: RunOverview, other: RunOverview) -> bool:
    """Whether the samples of a run are the same; the daemon keeps one snapshot until something changes."""
    return one.snapshot is other.snapshot and _beside(one) == _beside(other)


def _beside(run: RunOverview) -> tuple[object, ...]:
    """What a run's samples show besides its snapshot."""
    up = [(channel.source, channel.up) for channel in run.channels]
    return run.active, run.ended, run.labels, up


def _info(run: RunOverview) -> tuple[object, ...]:
    """What the text of a run holds besides its samples."""
    return run.labels, run.snapshot.framework, run.snapshot.version
