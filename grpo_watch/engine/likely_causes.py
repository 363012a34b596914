"""Likely causes of a finding, as detectors declare them, and those that fit a run's own configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from grpo_watch.engine.records import Scalar

MOST = 3
"""Causes shown per finding."""
ON = ("true", "1", "1.0", "yes", "on", "cpu", "nvme")
"""What a switched-on setting reads as; ``offload_optimizer`` names the device."""


class ConfiguredRun(Protocol):
    """What is known of a run's framework and configuration."""

    framework: str | None
    version: str | None

    def setting(self, name: str) -> Scalar:
        """The configured value, or None where it is not known."""

    def number(self, name: str) -> float | None:
        """The configured value as a number, or None."""

    def known(self, name: str) -> bool:
        """Whether the setting was read or inferred."""


@dataclass(frozen=True, slots=True)
class LikelyCause:
    """One likely cause. It matches where all that it names is known of the run and so.

    ``settings`` gives, per setting, the values it may have (as lower-case text), ``bounds`` its lowest and highest
    number; the text may hold a setting in braces. ``shows`` are words of the finding's summary. What
    depends on a version is an advisory. Without any condition no configuration rules the cause out.
    """

    text: str
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    framework: str | None = None
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    shows: str = ""

    @property
    def general(self) -> bool:
        """Whether it has no condition."""
        return not (self.settings or self.bounds or self.shows or self.framework)

    def matches(self, run: ConfiguredRun, summary: str = "") -> bool:
        """Whether the run's configuration, and what the finding says, are such that this cause is known from them."""
        return (
            self._in_framework(run)
            and self.shows in summary
            and all(_text(run.setting(name)) in had for name, had in self.settings.items())
            and all(_within(run.number(name), bounds) for name, bounds in self.bounds.items())
        )

    def text_for(self, run: ConfiguredRun) -> str:
        """The text with the run's own numbers."""
        return self.text.format_map({name: f"{run.number(name) or 0.0:g}" for name in self.bounds})

    def _in_framework(self, run: ConfiguredRun) -> bool:
        return self.framework in {None, run.framework}


def likely(causes: Sequence[LikelyCause], run: ConfiguredRun, summary: str = "") -> tuple[str, ...]:
    """At most three of these causes: those this configuration is known for, then the general ones."""
    matching = [cause.text_for(run) for cause in causes if not cause.general and cause.matches(run, summary)]
    return tuple((matching + [cause.text for cause in causes if cause.general])[:MOST])


def _text(value: Scalar) -> str | None:
    return None if value is None else str(value).lower()


def _within(value: float | None, bounds: tuple[float, float]) -> bool:
    return value is not None and bounds[0] <= value <= bounds[1]
