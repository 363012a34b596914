"""A detector's declarations about its findings: likely causes, explanations, costs, dashboards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

from grpo_watch.engine.records import Scalar
from grpo_watch.engine.run_view import RunView

MOST = 3
"""Causes shown per finding."""
ON = ("true", "1", "1.0", "yes", "on", "cpu", "nvme")
"""Values of a switched-on setting; ``offload_optimizer`` names the device."""


@dataclass(frozen=True, slots=True)
class LikelyCause:
    """One likely cause, which matches if all of its conditions are known to hold in the run.

    ``settings`` gives, per setting, the values it may have (as lower-case text), ``bounds`` its lowest and highest
    number; the text may hold a setting in braces. ``shows`` are words of the finding's summary, ``unless`` words that
    rule it out. Causes that depend on a version are advisories. A cause without conditions matches every configuration.
    """

    text: str
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    framework: str | None = None
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    shows: str = ""
    unless: tuple[str, ...] = ()

    @property
    def general(self) -> bool:
        """Whether it has no condition."""
        return not (self.settings or self.bounds or self.shows or self.framework)

    def matches(self, run: RunView, summary: str = "") -> bool:
        """Whether the run's configuration and the finding's summary meet all conditions of this cause."""
        return (
            self.framework in {None, run.framework}
            and self.shows in summary
            and all(_text(run.setting(name)) in had for name, had in self.settings.items())
            and all(_within(run.number(name), bounds) for name, bounds in self.bounds.items())
        )

    def text_for(self, run: RunView) -> str:
        """The text with the run's own numbers."""
        return self.text.format_map({name: f"{run.number(name) or 0.0:g}" for name in self.bounds})


def likely(causes: Sequence[LikelyCause], run: RunView, summary: str = "") -> tuple[str, ...]:
    """At most three of these causes: those that match this configuration, then the general ones."""
    possible = [cause for cause in causes if not any(words in summary for words in cause.unless)]
    matching = [cause.text_for(run) for cause in possible if not cause.general and cause.matches(run, summary)]
    return tuple((matching + [cause.text for cause in possible if cause.general])[:MOST])


def _text(value: Scalar) -> str | None:
    return None if value is None else str(value).lower()


def _within(value: float | None, bounds: tuple[float, float]) -> bool:
    return value is not None and bounds[0] <= value <= bounds[1]


class WasteKind(str, Enum):
    """What a finding costs: which of the compute spent while it lasted."""

    NOTHING = "nothing"
    """Learning continues."""
    STEPS = "steps"
    """From a warning on: its steps teach the policy nothing, or the wrong thing."""
    STEPS_IF_CRITICAL = "steps if critical"
    """The same for critical findings only, where a second sign agrees that the policy goes the wrong way."""
    SINCE_SAVE = "since save"
    """The steps since the newest checkpoint, which are lost."""
    SILENCE = "silence"
    """The time since the newest row, while a live run hangs."""


class Traits:
    """Declared by a detector's class, and read by diagnosis, costs, snapshots and the generated documents.

    Rules with a ``when`` condition have the defaults. Names of rules are names of detectors, so that a rule that uses a
    detector under another name takes part in the same relations.
    """

    explained_by: ClassVar[tuple[str, ...]] = ()
    """Rules that explain its finding, best explanation first. The relation has no cycles (tested)."""
    explained_only_as: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    """The values of the evidence ``kind`` that a cause explains; a cause that is not listed explains all."""
    withdrawn_by: ClassVar[str] = ""
    """The cause that refutes the finding instead of explaining it, which makes the finding an ``info``."""
    part_of_collapse: ClassVar[bool] = False
    """Whether it is a symptom of one collapse, in any order: the symptom that began first (and is no milder) explains
    the others."""
    seen_in_checkpoints: ClassVar[bool] = False
    """Whether it is seen only when the run saves, long after its consequences."""
    begins_when_seen: ClassVar[bool] = False
    """Whether its fault begins in the row that shows it, without the delay of a window: it explains nothing that an
    earlier row shows."""
    wastes: ClassVar[WasteKind] = WasteKind.NOTHING
    """What its findings cost."""
    learning_goes_on: ClassVar[frozenset[str]] = frozenset()
    """Keys of findings that cost nothing and need no likely causes, because a part of the model keeps learning."""
    ends_run: ClassVar[bool] = False
    """Whether its open finding means that the run has ended. Once a resume clears it, it is at most a warning."""
    harmless_when_over: ClassVar[bool] = False
    """Whether its finding reports that something has not happened so far: once it has, the finding is an ``info``."""
    stops_progress: ClassVar[bool] = False
    """Whether a run with its open finding makes no further steps, so that no time of its end can be estimated."""
    holds_under_any_name: ClassVar[bool] = False
    """Whether its finding holds whatever the metric's real name is, as NaN does. Others are at most a warning if the
    metric was read under a guessed name."""
    shows_frozen_policy: ClassVar[bool] = False
    """Whether it would show a frozen policy. A run in which all such rules are blind gets a caveat."""
    likely_causes: ClassVar[tuple[LikelyCause, ...]] = ()
    """Likely causes of a finding that nothing explains, likeliest first."""
    names_causes: ClassVar[bool] = False
    """Whether its finding is the likeliest cause of the rules that its evidence names under ``explains``."""
    dashboards: ClassVar[tuple[str, ...]] = ()
    """Grafana dashboards (``uid``) whose lane of rules shows it; the tables of findings show every rule."""
