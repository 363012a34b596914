"""Reads YAML that may be anyone's: no aliases, no depth, nothing that could exhaust the reader."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

MAX_DEPTH = 30
LONGEST_NUMBER = 400
NUMBER = re.compile(r"[-+0-9:._]+").fullmatch
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader of libyaml where PyYAML was built with it (all its wheels are): ten times as fast."""


class RefusedYamlError(ValueError):
    """YAML that is not read: it may be made to exhaust the reader."""


def plain_yaml(text: str) -> object:
    """What a YAML text without aliases holds.

    Raises:
        RefusedYamlError: it has aliases, which can expand a few lines to gigabytes, is nested too deeply, or holds a
            number without end (those of base 60, ``1:1:1``, take the square of their length).
        ValueError: it is no YAML.
    """
    try:
        _refuse(yaml.parse(text, Loader=_SAFE))
        return yaml.load(text, Loader=_SAFE)  # noqa: S506  a safe one
    except (yaml.YAMLError, OverflowError) as error:
        if "maximum nesting depth" in str(error):  # libyaml's own limit, from PyYAML 6.0.4 on
            raise RefusedYamlError(_too_deep(getattr(error, "problem_mark", None))) from error
        raise ValueError(str(error).splitlines()[0]) from error


def _refuse(events: Iterable[yaml.Event]) -> None:
    """Look at what there is before anything is built of it."""
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        number = isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST_NUMBER and NUMBER(event.value)
        if depth > MAX_DEPTH:
            raise RefusedYamlError(_too_deep(event.start_mark))
        if isinstance(event, yaml.AliasEvent) or number:
            what = "a number without end" if number else "aliases (*name)"
            raise RefusedYamlError(_refusal(what, event.start_mark))


def _too_deep(mark: Any) -> str:
    return _refusal(f"more than {MAX_DEPTH} levels", mark)


def _refusal(what: str, mark: Any) -> str:
    place = f"line {mark.line + 1}: " if mark else ""
    return f"{place}{what}: not read in a run's folder"
