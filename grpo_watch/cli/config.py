"""The settings in force: the daemon keeps and reloads them, ``grpo-watch config`` shows them with their origin."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from grpo_watch.catalogue import catalogue
from grpo_watch.cli.terminal import print_json
from grpo_watch.config.document import nearest
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import DEFAULT, EffectiveSetting, effective, json_schema, load_settings
from grpo_watch.errors import ConfigError, FilePlace
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import RuleSet, rule_set


def config_command(given: Namespace) -> int:
    """Print every setting as ``name = value  (origin)`` or as JSON, or the JSON schema of grpo-watch.yaml; returns 0.

    Raises:
        ConfigError, RuleError: the settings, or a rule file named in them, can't be used.
    """
    if given.what == "schema":
        print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema()})
        return 0
    loaded = load_settings({"rules": given.rules}, config=given.config)
    rules_to_send(loaded.settings, loaded.file)
    settings = effective(loaded, os.environ)
    if given.format == "json":
        values = {item.name: {"value": item.value, "origin": item.origin} for item in settings}
        print_json({"schema": "grpo-watch/config/1", "settings": values})
        return 0
    width = max(len(item.name) for item in settings)
    for item in settings:
        sys.stdout.write(_lines(item, width, color=given.color))
    return 0


def _lines(item: EffectiveSetting, width: int, *, color: bool) -> str:
    dim, reset = ("\033[2m", "\033[0m") if color and item.origin == DEFAULT else ("", "")
    if isinstance(item.value, list) and item.value and isinstance(item.value[0], dict):
        rows = "".join(f"{'':{width}}   - {_text(row)}\n" for row in item.value)
        return f"{dim}{item.name:{width}} =  ({item.origin}){reset}\n{rows}"
    return f"{dim}{item.name:{width}} = {_text(item.value)}  ({item.origin}){reset}\n"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


NEED_A_RESTART = ("listen", "state_dir", "retention", "web", "wandb", "allow_roots")
"""Settings that need a restart; a reload applies receivers, rules, labels and per-run settings."""

log = logging.getLogger("grpo_watch.run")


class SettingsInForce:
    """The settings in effect; SIGHUP replaces them if the whole file and its rules load, else it changes nothing.

    Errors in rule files are raised by the constructor, before any socket or file is opened.

    Args:
        load: reads the settings.
    """

    def __init__(self, load: Callable[[], Settings]) -> None:
        self._load = load
        self.settings = load()
        self.prepare: Callable[[Settings], None] = lambda _: None
        """Tests new settings before they are applied; may raise ``ConfigError``."""
        self._rules = rules_to_send(self.settings)

    def rules(self) -> Callable[[], RuleSet]:
        """A function for a new daemon: its first call returns the rules in force, later calls those of ``reload``."""
        first = [self._rules]
        return lambda: first.pop() if first else self.reload()

    def reload(self) -> RuleSet:
        """Reload the settings and return their rules; settings that need a restart keep their old value.

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
    """The shipped rules with the user's rules on top; raises ``RuleError`` if a file is invalid."""
    detectors = catalogue()
    return rule_set(load_rules(settings.rules, language=settings.language, detectors=detectors), detectors)


def rules_to_send(settings: Settings, file: Path | None = None) -> RuleSet:
    """The rules for commands that notify; a mute whose rule pattern matches no rule is only logged.

    Raises:
        RuleError: a rule file is invalid.
        ConfigError: a receiver's ``only_rules`` matches no rule.
    """
    detectors = catalogue()
    rules = load_rules(settings.rules, language=settings.language, detectors=detectors)
    names = [rule.name for rule in rules]  # disabled rules too

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
