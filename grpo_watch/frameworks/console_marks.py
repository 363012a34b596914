"""What a framework prints besides rows: what ``<framework>/marks.py`` lists in ``MARKS``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache

from grpo_watch.frameworks.plugins import contributions


class MarkKind(Enum):
    """What a mark means. A line with marks of several kinds has the meaning of the first of these."""

    FINISHED = "the job came to its end"
    RESUMED = "group 1 is the step that the job resumes from"
    TOTAL = "group 1 is the number of steps planned"
    EPOCH = "group 1 is the number of optimizer steps in an epoch"
    COMMAND = "the job's command line; its arguments follow"
    VERSION = "group 1 is the framework's version"
    NAME = "the line is the framework's own"
    SIZES = "group 1 is the number of training examples, group 2 that of epochs"
    PROCESSES = "group 1 is the number of training processes"
    DATASET = "a print of the training set begins; a line 'num_rows: N' follows"


@dataclass(frozen=True, slots=True)
class ConsoleMark:
    """One kind of line.

    ``sign``: a short expression that finds all such lines, for the one search that every line of a log goes through;
    empty where another mark's sign is in the same line.
    """

    framework: str
    kind: MarkKind
    pattern: re.Pattern[bytes]
    sign: bytes = b""


@cache
def marks(*kinds: MarkKind) -> tuple[ConsoleMark, ...]:
    """Every framework's marks of these kinds (none given: of all)."""
    return tuple(one for listed in contributions("marks", "MARKS") for one in listed if not kinds or one.kind in kinds)
