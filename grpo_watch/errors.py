"""All errors that grpo-watch raises on purpose.

GrpoWatchError
├── UsageError          wrong command line, config or rule file: exit code 2
│   ├── ConfigError     grpo-watch.yaml
│   └── RuleError       a rule pack or a ``when`` expression
├── StateInUseError     another daemon holds the state directory: exit code 4
├── SourceError         a channel of a run can't be read (the others continue)
└── TensorFileError     a weight file is truncated, refused or not understood
    └── ChangedWhileReadError
"""

from __future__ import annotations

from dataclasses import dataclass


class GrpoWatchError(Exception):
    """Base of all expected errors; ``str()`` is one line that a user can act on."""


class UsageError(GrpoWatchError):
    """The command line or a file given on it is wrong (exit code 2)."""


class StateNotReadyError(UsageError):
    """The state can't be opened now, which may pass: the disk is full, or another program holds the file."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The place of a problem in a user's file; line and column count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


class LocatedError(UsageError):
    """A usage error that names ``file:line:column`` and, where there is one, the fix."""

    def __init__(self, message: str, place: FilePlace | None = None, fix: str | None = None) -> None:
        self.message, self.place, self.fix = message, place, fix
        super().__init__(f"{f'{place}: ' if place else ''}{message}{f' ({fix})' if fix else ''}")


class ConfigError(LocatedError):
    """``grpo-watch.yaml`` can't be used."""


class RuleError(LocatedError):
    """A rule pack or a ``when`` expression can't be used."""


class StateInUseError(GrpoWatchError):
    """Another daemon holds the state directory (exit code 4)."""


class SourceError(GrpoWatchError):
    """One channel of a run can't be read; the others continue."""


class TensorFileError(GrpoWatchError):
    """A weight file is truncated, refused or not understood."""


class NotUnderstoodError(TensorFileError):
    """A weight file has no known fault, but its tensors can't be separated: it is hashed whole."""


class ChangedWhileReadError(TensorFileError):
    """A weight file was written to while it was read; the data read are meaningless."""
