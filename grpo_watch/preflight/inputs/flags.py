"""Turns arguments of a program into flags with their values, by the habits of the argument parsers of trainers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from grpo_watch.preflight.inputs.draft import LaunchDraft, typed
from grpo_watch.preflight.inputs.shell_expand import Argument

FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.DOTALL)


class Flag(NamedTuple):
    """``--name value …``; the name has underscores, even where it was written with dashes."""

    name: str
    values: tuple[Argument, ...]
    origin: str

    @property
    def unknown(self) -> str:
        """Why one of the values is not known, else empty."""
        return next((value.unknown for value in self.values if value.unknown), "")

    @property
    def text(self) -> str:
        """The values joined by a space."""
        return " ".join(value.text for value in self.values)


class Flags(NamedTuple):
    """A command line: flags in order, words before the first flag, and unknown variables."""

    flags: tuple[Flag, ...]
    words: tuple[Argument, ...]
    unseen: tuple[Argument, ...]


def parse_flags(arguments: Iterable[Argument]) -> Flags:
    """Split arguments into flags. ``$EXTRA`` after a flag's first value stands for arguments that can't be seen."""
    flags: list[Flag] = []
    words: list[Argument] = []
    unseen: list[Argument] = []
    for argument in arguments:
        found = FLAG.fullmatch(argument.text)
        if found is not None:
            value = found["value"]
            given = () if value is None else (Argument(value, argument.origin, argument.unknown),)
            flags.append(Flag(found["name"].replace("-", "_"), given, argument.origin))
        elif argument.unknown and argument.text.startswith("$") and (not flags or flags[-1].values):
            unseen.append(argument)
        elif flags:
            flags[-1] = flags[-1]._replace(values=(*flags[-1].values, argument))
        else:
            words.append(argument)
    return Flags(tuple(flags), tuple(words), tuple(unseen))


def put_flags(flags: Flags, draft: LaunchDraft, without: frozenset[str] = frozenset()) -> None:
    """Keep all flags as settings but those named in ``without``."""
    for flag in flags.flags:
        if flag.name not in without:
            put_flag(flag, draft)
    for argument in flags.unseen:
        draft.note(f"{argument.origin}: {argument.unknown}: arguments in it are not seen")


def put_flag(flag: Flag, draft: LaunchDraft) -> None:
    """Keep one flag: without a value it is true, ``--no_x`` is false, several values are joined."""
    if flag.unknown:
        draft.missing(flag.name, flag.origin, flag.unknown)
    elif not flag.values:
        name = flag.name.removeprefix("no_")
        draft.put(name, name == flag.name, flag.origin)
    elif len(flag.values) == 1:
        draft.put(flag.name, typed(flag.values[0].text), flag.values[0].origin)
    else:
        draft.put(flag.name, flag.text, flag.values[0].origin)


def split_options(
    arguments: Sequence[Argument], switches: frozenset[str]
) -> tuple[dict[str, Argument], tuple[Argument, ...]]:
    """Options of a launcher and what follows them; an option that is no switch takes the next word."""
    options: dict[str, Argument] = {}
    at = 0
    while at < len(arguments):
        found = FLAG.fullmatch(arguments[at].text)
        if found is None:
            break
        name = found["name"].replace("-", "_")
        if found["value"] is not None:
            options[name] = Argument(found["value"], arguments[at].origin, arguments[at].unknown)
        elif name in switches or at + 1 >= len(arguments):
            options[name] = Argument("true", arguments[at].origin)
        else:
            at += 1
            options[name] = arguments[at]
        at += 1
    return options, tuple(arguments[at:])
