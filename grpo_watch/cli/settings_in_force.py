"""Keeps the settings in effect and reloads them on request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from grpo_watch.catalogue import catalogue
from grpo_watch.config.document import nearest
from grpo_watch.config.schema import Settings
from grpo_watch.errors import ConfigError, FilePlace
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import RuleSet, rule_set

NEED_A_RESTART = ("listen", "state_dir", "retention", "web", "wandb", "allow_roots")
"""Settings that a reload does not change; receivers, rules, labels and settings of runs it does."""

log = logging.getLogger("grpo_watch.run")


class SettingsInForce:
    """The settings in effect; SIGHUP replaces them if the whole file and its rules load, and otherwise changes nothing.

    Errors in rule files are raised here, before anything is opened.

    Args:
        load: reads the settings.
    """

    def __init__(self, load: Callable[[], Settings]) -> None:
        self._load = load
        self.settings = load()
        self.prepare: Callable[[Settings], None] = lambda _: None
        """Makes what other settings ask for, to be taken after the reload; may raise ``ConfigError``."""
        self._rules = rules_to_send(self.settings)

    def rules(self) -> Callable[[], RuleSet]:
        """For a daemon that begins: gives the rules in force when it is first asked, later what ``reload`` gives."""
        first = [self._rules]
        return lambda: first.pop() if first else self.reload()

    def reload(self) -> RuleSet:
        """Take the settings again; answers with their rules. Those that need a restart stay as they are.

        Raises:
            ConfigError, RuleError: a file can't be used, or a receiver can't be made; the old settings stay.
        """
        fresh = self._load()
        rules = rules_to_send(fresh)
        self.prepare(fresh)
        waiting = [name for name in NEED_A_RESTART if getattr(fresh, name) != getattr(self.settings, name)]
        if [entry.path for entry in fresh.runs] != [entry.path for entry in self.settings.runs]:
            waiting.append("runs: path")
        if waiting:
            log.warning(
                "some changed settings take effect only after a restart",
                extra={"fields": {"settings": ", ".join(waiting)}},
            )
        kept = {name: getattr(self.settings, name) for name in NEED_A_RESTART}
        self.settings, self._rules = msgspec.structs.replace(fresh, **kept), rules
        return rules


def rules_in_force(settings: Settings) -> RuleSet:
    """The shipped rules with the user's over them; raises ``RuleError`` where a file is wrong."""
    detectors = catalogue()
    return rule_set(load_rules(settings.rules, language=settings.language, detectors=detectors), detectors)


def rules_to_send(settings: Settings, file: Path | None = None) -> RuleSet:
    """The same, for those who send what they find: a receiver of a rule that there is not would never get anything.

    A mute of one is logged: it keeps nothing back.

    Raises:
        RuleError: a file of rules is wrong.
        ConfigError: a receiver names no rule.
    """
    detectors = catalogue()
    rules = load_rules(settings.rules, language=settings.language, detectors=detectors)
    names = [rule.name for rule in rules]  # also those that are disabled

    def unknown(pattern: str) -> str | None:
        near = nearest(pattern, names) or "`grpo-watch rules list` lists all"
        return None if any(fnmatchcase(name, pattern) for name in names) else near

    for number, sink in enumerate(settings.sinks):
        for pattern in sink.only_rules:
            if fix := unknown(pattern):
                place = None if file is None else FilePlace(str(file))
                raise ConfigError(f"sinks.{number}.only_rules: no rule is called {pattern!r}", place, fix)
    for mute in settings.mute:
        if mute.end > time.time() and (fix := unknown(mute.rule)):
            log.warning("a mute names no rule", extra={"fields": {"mute": mute.rule, "fix": fix}})
    return rule_set(rules, detectors)
