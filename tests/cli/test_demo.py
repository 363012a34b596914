"""What the demo says around the alerts: blindness in one line, and where to look in the end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from grpo_watch.cli import demo
from grpo_watch.cli.run import Running
from grpo_watch.core.snapshot import RunSnapshot
from tests.support.reports import a_report


def test_blindness_is_one_line() -> None:
    snapshot: RunSnapshot = a_report().snapshot
    assert list(demo._brief(snapshot)) == [
        "watching my run (trl 1.16.0), step 20 of 100: 1 rules live, 1 blind (the page says which, and why)"
    ]


@pytest.mark.parametrize(("stays", "begin"), [(True, "open http://h:1/ "), (False, "To open the page, http://h:1/,")])
def test_it_ends_with_where_to_look(stays: bool, begin: str) -> None:  # noqa: FBT001
    watch = cast("Running", SimpleNamespace(address="h:1"))
    told = list(demo._closing(watch, fired=True, stays=stays))
    assert told[1].startswith(begin)
