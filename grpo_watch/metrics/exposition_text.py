"""Exposition text kept by part, so that a scrape renders only the runs that changed since the last one.

A format wants all samples of a family together, while it is runs that change: here each run's text is cut into
families, and the families of all runs are joined. Of a run that goes on, values change and labels don't: the encoder
writes its lines once, and later only the values are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Encoder = Callable[[Collector], bytes]
FamilyLines = Mapping[bytes, bytes]
"""Header of a family (HELP and TYPE lines) → its sample lines."""

Sample = tuple[str, tuple[str, ...], float]
"""Family, label values in the order of its table, value."""
Encode = Callable[[Sequence[Sample]], FamilyLines]

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


class LineTemplate:
    """The lines of one run up to their values.

    Args:
        samples: what the lines are of; those of one family need not be together.
        text: the lines as the encoder wrote them, families in the order in which they first come in ``samples``.
            Families behind these stay as they are.
    """

    def __init__(self, samples: Sequence[Sample], text: FamilyLines) -> None:
        self.series = [sample[:2] for sample in samples]
        places: dict[str, list[int]] = {}
        for place, (name, _) in enumerate(self.series):
            places.setdefault(name, []).append(place)
        self._rest = dict(text)
        self._lines: dict[bytes, list[tuple[int, bytes]]] = {}
        for header, mine in zip(text, places.values(), strict=False):
            beginnings = [line[: line.rindex(b" ") + 1] for line in self._rest.pop(header).split(b"\n")[:-1]]
            self._lines[header] = list(zip(mine, beginnings, strict=True))

    def filled(self, samples: Sequence[Sample]) -> FamilyLines:
        """The text with the values of these samples, whose ``series`` are the same."""
        values = [floatToGoString(sample[2]).encode() for sample in samples]  # type: ignore[no-untyped-call]
        lines = self._lines.items()
        filled = {header: b"".join(b"%b%b\n" % (begin, values[at]) for at, begin in mine) for header, mine in lines}
        return {**filled, **self._rest}


@dataclass(frozen=True, slots=True)
class _Kept:
    state: tuple[Hashable, ...]
    shown: object
    labels: Mapping[str, str]
    template: LineTemplate
    text: FamilyLines


class RunTexts:
    """The newest text of every run in one format."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._kept: dict[str, _Kept] = {}

    def of(
        self,
        run: str,
        shown: object,
        state: tuple[Hashable, ...],
        labels: Mapping[str, str],
        samples: Callable[[], Sequence[Sample]],
        encode: Encode,
    ) -> FamilyLines:
        """The run's text, rendered again only if something changed.

        Args:
            run: its name.
            shown: an object that is another one once its samples may have changed.
            state: what the samples depend on besides.
            labels: what the text holds besides its samples.
            samples: makes the samples.
            encode: writes them out in this format.
        """
        kept = self._kept.get(run)
        if kept is not None and kept.shown is shown and kept.state == state and kept.labels == labels:
            return kept.text
        made = samples()
        if kept is not None and kept.labels == labels and kept.template.series == [sample[:2] for sample in made]:
            template, text = kept.template, kept.template.filled(made)
        else:
            text = encode(made)
            template = LineTemplate(made, text)
        self._kept[run] = _Kept(state, shown, labels, template, text)
        return text

    def keep_only(self, runs: Iterable[str]) -> None:
        """Forget the runs that are gone."""
        for run in self._kept.keys() - set(runs):
            del self._kept[run]
