"""Python's ``re`` with a ``compile`` that waits until an expression is used: one run needs a tenth of ours."""

from __future__ import annotations

import re
from re import *  # noqa: F403  everything else is as it is there
from typing import Any, AnyStr, Generic, cast


class _Waiting(Generic[AnyStr]):
    """An expression that becomes a ``Pattern`` on first use; attributes are cached."""

    def __init__(self, pattern: AnyStr, flags: int) -> None:
        self._given: tuple[AnyStr, int] = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # `copy` and `pickle` ask for these before `_given` exists
            raise AttributeError(name)
        found = getattr(re.compile(*self._given), name)
        setattr(self, name, found)
        return found


def compile(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:  # type: ignore[no-redef]  # noqa: A001
    """Compile the expression on first use; errors in it surface then (a test compiles all)."""
    return cast("re.Pattern[AnyStr]", _Waiting(pattern, flags))
