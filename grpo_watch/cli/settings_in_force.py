"""Keeps the settings in effect and reloads them on request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from fnmatch import fnmatchcase

import msgspec

from grpo_watch.catalogue import catalogue
from grpo_watch.config.document import nearest
from grpo_watch.config.schema import Settings
from grpo_watch.errors import ConfigError
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
        self._rules = rules_in_force(self.settings)

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
        rules = rules_in_force(fresh)
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
    """The shipped rules with the user's over them.

    Raises:
        RuleError: a file is wrong.
        ConfigError: a receiver or a mute names a rule that there is not: it would say nothing of the one that is meant.
    """
    detectors = catalogue()
    rules = load_rules(settings.rules, language=settings.language, detectors=detectors)
    named = [("only_rules", pattern) for sink in settings.sinks for pattern in sink.only_rules]
    for key, pattern in (*named, *(("mute", mute.rule) for mute in settings.mute)):
        if not any(fnmatchcase(rule.name, pattern) for rule in rules):
            fix = nearest(pattern, [rule.name for rule in rules]) or "`grpo-watch rules list` lists all"
            raise ConfigError(f"{key}: no rule is called {pattern!r}", fix=fix)
    return rule_set(rules, detectors)
