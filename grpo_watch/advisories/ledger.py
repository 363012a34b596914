"""Merges a run's configurations and says which advisories apply to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_watch.advisories.judge import VERSION_OF, Setup, judge
from grpo_watch.engine.known_bug import KnownBug
from grpo_watch.engine.records import RunConfig, Setting


class AdvisoryLedger:
    """What is known of one run's versions and settings; the lowest precedence wins, then the newer."""

    def __init__(self) -> None:
        self._framework: tuple[int, str | None] = (99, None)
        self._settings: dict[str, tuple[int, Setting]] = {}
        self._applying: dict[str, KnownBug] = {}

    @property
    def setup(self) -> Setup:
        """All of it so far."""
        return Setup(self._framework[1], {name: setting for name, (_, setting) in self._settings.items()})

    def take(self, config: RunConfig) -> Iterator[KnownBug]:
        """Each advisory that applies since this configuration, then each that no longer does."""
        if config.framework is not None and config.precedence <= self._framework[0]:
            self._framework = config.precedence, config.framework
        if config.version is not None and config.framework is not None:
            self._put(f"{VERSION_OF}{config.framework}", Setting(config.version, config.channel), config.precedence)
        for name, setting in config.settings.items():
            self._put(name, setting, config.precedence)
        applying = {match.advisory.id: match.record() for match in judge(self.setup) if match.applies}
        before, self._applying = self._applying, applying
        yield from (bug for name, bug in applying.items() if before.get(name) != bug)
        yield from (replace(bug, applies=False) for name, bug in before.items() if name not in applying)

    def _put(self, name: str, setting: Setting, precedence: int) -> None:
        known = self._settings.get(name)
        if known is None or precedence <= known[0]:
            self._settings[name] = precedence, setting
