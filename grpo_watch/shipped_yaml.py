"""Reads the package's own YAML files; users' files are first checked with ``refuse_bombs``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from grpo_watch import lazy_re as re

SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader of libyaml where PyYAML was built with it (all its wheels are): ten times as fast."""


def shipped_yaml(file: Path | str) -> Any:
    """The parsed content of a file, or of a text."""
    text = file.read_text(encoding="utf-8") if isinstance(file, Path) else file
    return yaml.load(text, Loader=SAFE_LOADER)  # noqa: S506  a safe one


MAX_DEPTH = 30
LONGEST_NUMBER = 400
DIGITS = re.compile(r"[-+0-9:._]+").fullmatch


class YamlBombError(yaml.MarkedYAMLError):
    """YAML that may exhaust its reader; ``problem`` says how."""


def refuse_bombs(text: str) -> None:
    """Check a YAML text before it is loaded.

    Raises:
        YamlBombError: it has aliases, which can expand a few lines to gigabytes, is nested too deeply, or holds an
            endless number (those of base 60, ``1:1:1``, take time quadratic in their length).
        yaml.YAMLError: it is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=SAFE_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        number = isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST_NUMBER and DIGITS(event.value)
        what = f"more than {MAX_DEPTH} levels" if depth > MAX_DEPTH else "a number without end" if number else ""
        if what or isinstance(event, yaml.AliasEvent):
            mark: Any = event.start_mark  # of libyaml or of Python
            raise YamlBombError(problem=what or "aliases (*name)", problem_mark=mark)
