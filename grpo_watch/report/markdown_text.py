"""Makes text safe inside GitHub-flavoured Markdown: it is shown as it is, and nothing in it is markup or a mention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain

from grpo_watch.report.text import printable

SPECIAL = re.compile(r"[\\`*\[\]<~|$]|(?<!\w)_|^(?:[-+#>=:]|\d+(?=[.)]))")
"""Characters that begin markup where they stand: anywhere, an underscore before a word, or a line's first ones."""
LINKED = re.compile(r"(?<!\w)@(?=\w)|#(?=\d)|(?<=[Gg][Hh])-(?=\d)|:(?=//)|(?<=[Ww]{3})\.")
"""Where GitHub makes a link of plain text: ``@name``, ``#1``, ``GH-1``, addresses. A space without width stops it."""
BACKTICKS = re.compile(r"`+")
ENTITY = re.compile(r"&(?=#?\w+;)")


def prose(text: str) -> str:
    """A sentence; `code` between backticks stays code, all else is plain."""
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:  # one backtick has no partner
        return _plain("`".join(parts))
    return "".join(code(part) if index % 2 else _plain(part) for index, part in enumerate(parts))


def code(text: str) -> str:
    """A span of code; also inside a table, where a pipe needs a backslash even in code."""
    told = printable(text)
    if not told.strip():
        return ""
    fence = "`" * (1 + max((len(run) for run in BACKTICKS.findall(told)), default=0))
    room = " " if told.startswith("`") or told.endswith("`") else ""
    return f"{fence}{room}{told}{room}{fence}".replace("|", "\\|")


def fenced(lines: Iterable[str], kind: str = "text") -> list[str]:
    """A block of code, one line each, behind a fence longer than any inside."""
    told = [printable(line) for line in lines]
    longest = max((len(run) for run in chain.from_iterable(map(BACKTICKS.findall, told))), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{kind}", *told, fence]


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown already."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}", *lines]


def _escaped(found: re.Match[str]) -> str:
    """A number that would begin a list has its dot escaped instead; it can't be escaped itself."""
    return f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}"


def _plain(text: str) -> str:
    """No markup, no entity, nobody is called by ``@name``, nothing is a link."""
    return LINKED.sub("\\g<0>\u200b", ENTITY.sub("&amp;", SPECIAL.sub(_escaped, text)))
