"""Makes of a bundled TRL run what its wandb callback would have logged, and reads runs from the test server."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from grpo_watch.engine.records import Cursor, Item, RawRow
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.trackers.wandb_api.hub import Hub
from grpo_watch.sources.trackers.wandb_api.process import ClientProcess
from grpo_watch.sources.trackers.wandb_api.remote import RemotePlace
from grpo_watch.sources.trackers.wandb_api.source import WandbApiSource
from tests.support.wandb_server import ServedRun

PLACE = RemotePlace("ada", "grpo", "r1")


def wandb_rows(folder: Path, run: ServedRun) -> list[dict[str, Any]]:
    """The calls of a run in ``folder``: per step two profiling rows, the metrics, and the table where there is one.

    TRL 1.16 logs in this order; metrics get ``train/`` or ``eval/`` and every call the last known global step.
    """
    log = ConsoleSource("train.log", folder / "train.log", [folder])
    made: list[dict[str, Any]] = []

    def call(values: dict[str, Any], step: int) -> None:
        made.append({"_step": len(made), "_timestamp": 1.795e9 + len(made), "train/global_step": step, **values})

    for item in (*log.poll(None), *log.finish()):
        if not isinstance(item, RawRow) or item.step is None:
            continue
        call({"profiling/Time taken: Trainer.compute_loss": 0.04}, item.step - 1)
        call({"profiling/Time taken: Trainer._prepare_inputs": 0.2}, item.step - 1)
        call({_wandb_key(key): value for key, value in item.values.items()}, item.step)
        dump = folder / "output" / "completions" / f"completions_{item.step:05d}.parquet"
        if dump.exists():
            call({"completions": table(run, len(made), pq.read_table(dump).to_pydict())}, item.step)
    return made


def _wandb_key(key: str) -> str:
    return f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}"


def table(run: ServedRun, at: int, columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Store a table on the server as wandb does; what the history says of it."""
    path = f"media/table/completions_{at}_{at:020x}.table.json"
    data = [list(row) for row in zip(*columns.values(), strict=True)]
    content = json.dumps({"columns": list(columns), "data": data}).encode()
    run.files[path] = content
    return {"_type": "table-file", "path": path, "size": len(content), "ncols": len(columns), "nrows": len(data)}


def metrics(step: int, **values: float | None) -> dict[str, Any]:
    """What a Trainer logs at one step."""
    return {"train/global_step": step, "train/loss": 0.5, "train/reward": step / 100, "train/kl": 0.01, **values}


def calls(*rows: dict[str, Any], begin: int = 0) -> list[dict[str, Any]]:
    """The rows with wandb's own counter."""
    return [{"_step": at, "_timestamp": 1.795e9 + at, **row} for at, row in enumerate(rows, begin)]


class Reading:
    """A hub that a test steps by hand; its clock stands still unless ``now`` is set."""

    def __init__(self, client: ClientProcess, *, per_minute: float = 6e6) -> None:
        self.now, self.woken = 0.0, 0
        self.hub = Hub(client, timer=lambda: self.now, chance=random.Random(5), per_minute=per_minute, wake=self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def source(
        self, cursor: Cursor | None = None, place: RemotePlace = PLACE, size: Callable[[], int | None] = lambda: None
    ) -> WandbApiSource:
        return WandbApiSource("wandb/r1", Path(), (), size, 0, cursor, place=place, hub=self.hub)

    def turn(self, seconds: float = 0.0) -> int:
        """Let time pass, then ask all that is due; how many questions that were."""
        self.now += seconds
        asked = 0
        while not self.hub.step():
            asked += 1
            assert asked < 1_000, "the hub never rests"
        return asked

    def read(self, source: WandbApiSource, seconds: float = 60.0) -> list[Item]:
        self.turn(seconds)
        return list(source.poll(1.8e9 + self.now))

    def all(self, source: WandbApiSource) -> Iterator[Item]:
        yield from self.read(source)
        yield from source.finish()
