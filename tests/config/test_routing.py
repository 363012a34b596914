"""What a receiver may say of the messages that it wants."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path

import pytest

from grpo_watch.config.schema import Mute
from grpo_watch.config.settings import load_settings
from grpo_watch.errors import ConfigError
from grpo_watch.notify.receiver import Route, route_of


def route(folder: Path, delivery_settings: str) -> Route:
    file = folder / "grpo-watch.yaml"
    file.write_text(f"sinks:\n  - {{type: webhook, url: 'http://127.0.0.1:1/', {delivery_settings}}}\n")
    return route_of(load_settings(config=file, environ={}).settings.sinks[0])


@pytest.mark.parametrize(
    ("delivery_settings", "problem"),
    [
        ("only_run: ['x']", "unknown key 'only_run' .did you mean only_runs?"),
    ],
)
def test_mistakes_name_the_line(tmp_path: Path, delivery_settings: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"grpo-watch.yaml:2.*{problem}"):
        route(tmp_path, delivery_settings)


def test_a_mute_lasts_to_the_end_of_its_day() -> None:
    """In local time; a moment with a zone is that moment, none is for good."""
    assert Mute(until=date(2027, 1, 31)).end == datetime(2027, 2, 1).astimezone().timestamp()
    assert Mute(until=datetime(2027, 1, 31, 12, tzinfo=timezone.utc)).end == 1_801_396_800.0
    assert Mute(run="exp7*").covers("exp7-a", "kl-stuck-at-zero", 1e12)
    assert not Mute(run="exp7*").covers("exp8", "kl-stuck-at-zero", 0.0)
