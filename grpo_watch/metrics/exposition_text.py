"""Exposition text kept by run, so that a scrape renders only the runs that changed since the last one.

A format wants all samples of a family together, while it is runs that change: here each run's text is cut into
families, and the families of all runs are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from grpo_watch import lazy_re as re
from grpo_watch.metrics.daemon_snapshot import RunOverview

Encoder = Callable[[Collector], bytes]
FamilyLines = Mapping[bytes, bytes]
"""Header of a family (HELP and TYPE lines) → its sample lines."""

_END = b"# EOF\n"
_FAMILY = re.compile(rb"((?:^# .*\n)+)((?:^[^#].*\n)*)", re.MULTILINE)


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def encoded(encoder: Encoder, families: Iterable[Metric]) -> FamilyLines:
    """The text of some families, by header."""
    text = encoder(_Collected(families)).removesuffix(_END)
    return {family[1]: family[2] for family in _FAMILY.finditer(text)}


def joined(parts: Iterable[FamilyLines], content_type: str) -> bytes:
    """One document of many parts; families are in the order in which they first come."""
    families: dict[bytes, list[bytes]] = {}
    for part in parts:
        for header, lines in part.items():
            families.setdefault(header, []).append(lines)
    document = b"".join(piece for header, lines in families.items() for piece in (header, *lines))
    return document + _END if content_type.startswith("application/openmetrics-text") else document


class RunTexts:
    """The newest text of every run in one format."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._kept: dict[str, tuple[RunOverview, FamilyLines]] = {}

    def of(
        self, runs: Iterable[RunOverview], families: Callable[[RunOverview], Iterable[Metric]]
    ) -> Iterable[FamilyLines]:
        """The text of each run, rendered again only if something changed; those that are gone are forgotten."""
        before, self._kept = self._kept, {}
        for run in runs:
            kept = before.get(run.snapshot.run)
            if kept is None or kept[0].snapshot is not run.snapshot or _beside(kept[0]) != _beside(run):
                kept = run, encoded(self.encoder, families(run))
            self._kept[run.snapshot.run] = kept
        return [text for _, text in self._kept.values()]


def _beside(run: RunOverview) -> tuple[object, ...]:
    up = [(channel.source, channel.up) for channel in run.channels]
    return run.active, run.ended, run.labels, up
