"""Shares of the runs: each run belongs to one of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from grpo_watch.config.fields import Shard
from grpo_watch.config.settings import load_settings
from grpo_watch.errors import ConfigError, UsageError


def test_each_run_is_of_exactly_one_share_and_shares_are_even() -> None:
    places = [f"/mnt/runs/team-{number % 7}/run-{number}" for number in range(4_000)]
    shares = [Shard(index, 8) for index in range(1, 9)]
    held = Counter(share.index for place in places for share in shares if share.holds(place))
    assert held.total() == len(places)
    assert all(400 < held[share.index] < 600 for share in shares)


def test_without_a_share_a_daemon_watches_all_runs() -> None:
    assert all(Shard.parse("").holds(place) for place in ("a", "b", "wandb://team/project/run"))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/", "/2", "a/b", "-1/2", "1/2/3"])
def test_a_wrong_share_is_refused_with_what_to_write(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"use I/N with I from 1 to N, e\.g\. 2/8"):
        Shard.parse(text)
    with pytest.raises((ConfigError, UsageError), match="use I/N with I from 1 to N"):
        load_settings({"shard": text}, environ={}, folder=tmp_path)
