"""Finds out from a piece of a log how its job ended."""

from __future__ import annotations

import re

from grpo_watch.engine.records import EventKind, RunEvent
from grpo_watch.sources.base import SourceStats
from grpo_watch.sources.console.parser import ConsoleParser

ENDS = frozenset({EventKind.TRACEBACK, EventKind.KILLED, EventKind.CONFIG_ERROR})


def dies(text: bytes) -> bool:
    """Whether a piece of a log names how its job died."""
    parser = ConsoleParser("", 0, SourceStats(), {})
    items = [item for line in re.split(rb"[\r\n]+", text) for item in parser.feed(line, None)]
    return any(isinstance(item, RunEvent) and item.kind in ENDS for item in [*items, *parser.flush(None)])
