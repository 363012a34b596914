"""States that readers of consoles stored in an older form: reading goes on from them."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.engine.records import Cursor, Item, RawRow
from grpo_watch.sources.base import Source, SourceStats
from grpo_watch.sources.console.older_state import older_state
from grpo_watch.sources.console.parser import ConsoleParser
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.trackers.swanlab import SwanlabSource
from tests.support.channel import Opens, whole

HERE = Path(__file__).parent
STORED = json.loads((HERE / "older_states.json").read_text())
"""Written by the readers of commit 8f49cca6 at the end of ``before``, or once the first ``given`` items were."""


def opens(kind: type[ConsoleSource | SwanlabSource], path: Path) -> Opens:
    def opened(cursor: Cursor | None) -> Source:
        return kind("log", path, [path.parent], cursor=cursor)

    return opened


def gone_on(opens: Opens, path: Path, after: bytes, stored: dict[str, Any]) -> list[Item]:
    """The items of a reader, and behind them those of one that has the stored state."""
    first = opens(None)
    items = [*islice(first.poll(None), stored.get("given"))]
    place = first.cursor()
    first.close()
    with path.open("ab") as file:
        file.write(after)
    second = opens(Cursor(place.source, place.identity, stored["position"], stored["state"]))
    items += [*second.poll(None), *second.finish()]
    second.close()
    return items


@pytest.mark.parametrize("name", STORED["console"])
def test_a_console_goes_on_from_an_older_state(name: str, tmp_path: Path) -> None:
    stored, path = STORED["console"][name], tmp_path / "train.log"
    path.write_text(stored["before"], newline="")
    found = gone_on(opens(ConsoleSource, path), path, stored["after"].encode(), stored)
    assert found == whole(opens(ConsoleSource, path))


@pytest.mark.parametrize("version", STORED["swanlab"])
def test_swanlab_goes_on_inside_a_traceback_from_an_older_state(version: str, tmp_path: Path) -> None:
    log, path = (HERE / "swanlab" / f"exits-{version}.swanlab").read_bytes(), tmp_path / "run-a.swanlab"
    cut = log.rindex(b"RuntimeError: CUDA")
    path.write_bytes(log[:cut])
    found = gone_on(opens(SwanlabSource, path), path, log[cut:], STORED["swanlab"][version])
    assert repr(found) == repr(whole(opens(SwanlabSource, path)))


@pytest.mark.parametrize("name", STORED["console"])
def test_a_state_is_converted_once(name: str) -> None:
    new = older_state(STORED["console"][name]["state"])
    assert older_state(new) == new


@pytest.mark.parametrize("text", ["", "{", "5", "[[true], 5]", '{"held": 5}', '{"decimals": [1]}', "a:b", "|x|1:|:2"])
def test_a_damaged_older_state_silences_no_log(text: str) -> None:
    parts = dict.fromkeys(("of_rank", "slots", "lengths", "epochs", "own", "columns", "bars"), text)
    parser = ConsoleParser("log", 0, SourceStats(), parts)
    found = [*parser.feed(b"{'loss': 0.1, 'reward': 0.5, 'epoch': 0.01}", None), *parser.flush(None)]
    assert [item.step for item in found if isinstance(item, RawRow)] == [1]
