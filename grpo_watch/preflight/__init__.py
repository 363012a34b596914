"""Checks a launch before it starts: its problems, the nearest valid settings, the predicted run.

The package is callable as the function ``grpo_watch.preflight``, because both have the same name.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpo_watch.preflight.findings import Assessment


def preflight(command_or_file: str | os.PathLike[str] | Sequence[str], **options: Any) -> Assessment:
    """Judge a launch: an existing file (script, configuration, run folder), or a command line.

    ``options`` are those of the command, such as ``world_size=8``, ``dataset_size=7473`` or ``framework="trl"``.

    Raises:
        UsageError: the launch can't be read, or starts no training.
    """
    from grpo_watch.preflight.assess import assess  # noqa: PLC0415  a light package
    from grpo_watch.preflight.inputs.load_launch import GivenOptions, read_launch  # noqa: PLC0415

    file, command = None, list[str]()
    if not isinstance(command_or_file, str | os.PathLike):
        command = list(command_or_file)
    elif os.path.lexists(command_or_file):
        file = Path(command_or_file)
    else:
        command = shlex.split(os.fspath(command_or_file))
    return assess(read_launch(file, command, GivenOptions(**options), Path.cwd(), os.environ))


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Assessment:
        """See ``preflight``."""
        return preflight(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
