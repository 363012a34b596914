"""Counts what the shipped rules report about the healthy runs of a folder with a ``labels.json``, per run-hour."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import EndState, Severity, Tick
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.pipeline.offline import replay
from grpo_watch.pipeline.open_run import open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import Discoverer


def snapshots(entry: Path) -> Iterator[tuple[RunSnapshot, float]]:
    """Each run of an entry as it ended, with the hours that its own step times add up to (0: it logs none)."""
    for found in Discoverer().discover(entry):
        pipeline = Pipeline(found.name, load_rules([]), catalogue())
        opened = open_run(found, pipeline)
        for _ in replay(opened, pipeline, Tick(0.0, live=False, state=EndState.ENDED)):
            pass
        opened.close()
        picture = pipeline.snapshot()
        seconds = pipeline.state.pace.median() or picture.values.get("step_seconds_average") or 0.0
        yield picture, seconds * picture.step / 3600.0


def false_alarms(folder: Path) -> str:
    """One paragraph: findings at ``warning`` or above that a healthy run's label does not allow."""
    labels: list[dict[str, Any]] = json.loads((folder / "labels.json").read_text())
    runs = rows = timed = warned = healthy = 0
    hours = 0.0
    alarms: Counter[tuple[str, str]] = Counter()
    for label in labels:
        if label["label"] != "healthy":
            continue
        healthy += 1
        for snapshot, lasted in snapshots(folder / label["entry"]):
            if not snapshot.rows:
                continue
            runs, rows, hours, timed = runs + 1, rows + snapshot.rows, hours + lasted, timed + (lasted > 0)
            fired = {(f.rule, f.severity.value) for f in snapshot.findings if f.severity is not Severity.INFO}
            alarms.update(name for name in fired if name[0] not in label["may"])
            warned += any(name[0] in label["may"] for name in fired)
    named = ", ".join(f"`{rule}` ({severity}) {times}" for (rule, severity), times in alarms.most_common())
    total = sum(alarms.values())
    rate = f"{total / hours:.2f} per run-hour" if hours else "no hours known"
    return (
        f"{runs} healthy recorded runs with {rows:,} rows; the {timed} that log step times lasted {hours:.1f} hours "
        f"in total. Findings at `warning` or above that their labels do not allow: {total} ({named or 'none'}), or "
        f"{rate}. {warned} runs have a finding that their label allows, such as a length limit that truncates most "
        f"completions. ({healthy} runs are labelled healthy; runs without readable rows are excluded.)"
    )
