"""A recorded frozen run whose log a test writes piece by piece, its daemon, and what its receivers get."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Mute, Settings
from grpo_watch.daemon.dispatcher import NotificationDispatcher
from grpo_watch.notify.receiver import Route, RoutedReceiver
from tests.support.bundles import RECORDED, unpack
from tests.support.live import Live
from tests.support.postbox import Named

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"


class FrozenRun:
    """A frozen run whose log a test writes piece by piece, its daemon, and what its receivers get."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, unpack(FROZEN, folder / "runs")
        self.watched = self.run
        for console in self.run.rglob("*.log"):
            console.unlink()
        self.log = next(self.run.rglob("logging.jsonl"))
        self.rows = self.log.read_bytes().splitlines(keepends=True)
        self.write(0)
        self.now = RECORDED

    def write(self, rows: int) -> None:
        """The log holds so many rows now."""
        self.log.write_bytes(b"".join(self.rows[:rows]))
        for path in (self.log, self.log.parent, self.run):
            os.utime(path, (RECORDED, RECORDED))

    def recover(self, live: Live) -> None:
        """The KL moves from here on."""
        self.write_recovery(live)
        live.settle()
        live.settle()

    def write_recovery(self, live: Live) -> None:
        """The rows of it, which are not read yet."""
        self._append(live, lambda step: 0.01 + step * 1e-4)

    def write_relapse(self, live: Live) -> None:
        """The KL is zero again in rows that are not read yet."""
        self._append(live, lambda _: 0.0)

    def _append(self, live: Live, kl: Callable[[int], float]) -> None:
        step = live.run().step
        row = json.loads(self.rows[10])
        with self.log.open("a") as log:
            for number in range(step + 1, step + 21):
                place = {"global_step/max_steps": f"{number}/100", "kl": kl(number)}
                other = {"grad_norm": row["grad_norm"] + number * 1e-3}  # the same on each row would be a fault
                log.write(json.dumps({**row, **place, **other}) + "\n")

    def start(self, *routed: tuple[str, Route], **delivery_settings: Any) -> tuple[Live, NotificationDispatcher]:
        """A daemon that goes on from what is stored, once it has read what there is."""
        live, dispatcher = self.begin(*routed, **delivery_settings)
        live.settle()
        return live, dispatcher

    def begin(
        self,
        *routed: tuple[str, Route],
        before: Live | None = None,
        page: str = "",
        backlog: Callable[[], str] = lambda: "live",
        mutes: Callable[[], Iterable[Mute]] = tuple,
    ) -> tuple[Live, NotificationDispatcher]:
        """The same before it looks; ``before`` was without state."""
        named = [RoutedReceiver(Named(name), route) for name, route in routed or (("hook", Route()),)]  # type: ignore[arg-type]

        def settings() -> Settings:
            return converted(Settings, {"notify_backlog": backlog(), "mute": tuple(mutes())})

        dispatcher = NotificationDispatcher(named, settings, page)
        live = Live(self.watched, self.folder / "state", now=self.now, dispatcher=dispatcher, before=before)
        return live, dispatcher

    def more(self, live: Live, rows: int) -> None:
        """Rows are written and read."""
        self.write(rows)
        live.settle()
        live.settle()
