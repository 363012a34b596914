"""Finds the training command in a shell script or on a command line and reads it into a draft."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path, PurePath
from typing import NamedTuple

from grpo_watch.errors import SourceError, UsageError
from grpo_watch.preflight.inputs.draft import LaunchDraft, hidden, read_text
from grpo_watch.preflight.inputs.program import INLINE, SHELLS, Program, recognise
from grpo_watch.preflight.inputs.program_settings import read_program
from grpo_watch.preflight.inputs.shell import Command, Script
from grpo_watch.preflight.inputs.shell_expand import Argument, Variables
from grpo_watch.preflight.inputs.shell_lexer import ASSIGNMENT

ORIGIN = "command line"
MAX_SCRIPTS = 4
GRPO_SIGNS = ("GRPO", "grpo")


class _Candidate(NamedTuple):
    command: Command
    program: Program
    rank: int


def read_command(words: Sequence[str], draft: LaunchDraft) -> None:
    """Read a command line as a shell passes it on.

    Raises:
        UsageError: it launches nothing that preflight knows, or names a file that can't be read.
    """
    arguments = [Argument(word, ORIGIN) for word in words]
    if any(PurePath(word).name in SHELLS and INLINE.fullmatch(flag) for word, flag in pairwise(words)):
        _from_text(shlex.join(words), ORIGIN, draft)
        return
    program = recognise(arguments)
    if program is None:
        raise UsageError(f"{_short(words)}: not a GRPO training launch (see docs/preflight.md for what is read)")
    if program.kind == "shell":
        path = draft.find(program.name)
        if path is None:
            raise UsageError(f"{program.name}: no such file")
        read_script(path, draft, program.arguments)
        return
    read_program(program, draft)


def _short(words: Sequence[str]) -> str:
    """The command's first word: variables and arguments may hold a secret."""
    return hidden(next((word for word in words if not ASSIGNMENT.match(word)), "the command"))[:60]


def read_script(path: Path, draft: LaunchDraft, arguments: Sequence[Argument] = (), depth: int = 0) -> None:
    """Read a shell script: of the commands in it the one that trains.

    Raises:
        UsageError: the script can't be read, or launches nothing that preflight knows.
    """
    name = draft.shown(path)
    try:
        text = read_text(path)
    except (OSError, SourceError, ValueError) as error:
        raise UsageError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    draft.saw(name)
    _from_text(text, name, draft, path, arguments, depth)


def _from_text(
    text: str, name: str, draft: LaunchDraft, path: Path = Path("-"), arguments: Sequence[Argument] = (), depth: int = 0
) -> None:
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100  a link's own folder, not its target's
    script = Script(name, draft.folder, Variables(folder=str(folder)))
    script.begin(draft.environ, arguments)
    candidates = [found for command in script.commands(text) if (found := _candidate(command, draft)) is not None]
    draft.folders.append(folder)
    for note in script.notes:
        draft.note(note)
    if not candidates:
        raise UsageError(f"{name}: no command launches GRPO training")
    _read(_best(candidates, draft), draft, depth)


def _read(chosen: _Candidate, draft: LaunchDraft, depth: int) -> None:
    command, program, _ = chosen
    draft.folders.insert(0, command.folder)
    draft.environment.update(command.environment)
    if program.kind != "shell":
        read_program(program, draft)
        return
    path = draft.find(program.name)
    if path is None or depth >= MAX_SCRIPTS:
        raise UsageError(f"{program.arguments[0].origin if program.arguments else program.name}: no such file")
    read_script(path, draft, program.arguments, depth + 1)


def _candidate(command: Command, draft: LaunchDraft) -> _Candidate | None:
    """How likely a command is the training: 4 for a framework's own command, down to 1 for some Python file."""
    program = recognise(command.arguments)
    if program is None:
        return None
    if program.kind == "shell":
        return _Candidate(command, program, 0)
    if program.kind != "script":
        return _Candidate(command, program, 4)
    path = draft.find(program.name) or (command.folder / program.name)
    if any(sign in program.name for sign in GRPO_SIGNS) or _mentions_grpo(path):
        return _Candidate(command, program, 3)
    return _Candidate(command, program, 2 if program.options.keys() - {"python"} else 1)


def _mentions_grpo(path: Path) -> bool:
    try:
        return path.is_file() and "GRPO" in read_text(path)
    except (OSError, SourceError, ValueError):
        return False


def _best(candidates: Sequence[_Candidate], draft: LaunchDraft) -> _Candidate:
    """The surest one; of several equally sure ones the first, with a note."""
    best = max(candidates, key=lambda candidate: candidate.rank)
    equal = [candidate for candidate in candidates if candidate.rank == best.rank]
    if len(equal) > 1:
        places = ", ".join(candidate.command.arguments[0].origin for candidate in equal)
        draft.note(f"{len(equal)} commands train ({places}); the first is judged")
    return best
