"""Times parse, normalise and detectors alone over the lines of one JSONL log, beside ``json.loads`` of them.

Prints two numbers: microseconds per row of the pipeline, and of ``json.loads``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from grpo_watch.config.rules import load_rules
from grpo_watch.core.detector import catalogue
from grpo_watch.core.records import Tick
from grpo_watch.runtime.open import open_run
from grpo_watch.runtime.pipeline import Pipeline
from grpo_watch.runtime.replay import replay
from grpo_watch.sources.discover import Discoverer


def pipeline_seconds(folder: Path) -> float:
    """Seconds from the first byte read to the last transition, everything imported and opened before."""
    found = Discoverer().discover(folder)[0]
    pipeline = Pipeline(load_rules([]), catalogue())
    opened = open_run(found, pipeline)
    start = time.perf_counter()
    for _ in replay(opened, pipeline, Tick(0.0, live=False)):
        pass
    return time.perf_counter() - start


def json_seconds(log: Path) -> tuple[float, int]:
    """Seconds of reading the same lines with the standard library, and how many lines there are."""
    start = time.perf_counter()
    with log.open() as lines:
        count = sum(1 for line in lines if json.loads(line))
    return time.perf_counter() - start, count


def main() -> None:
    """Time both over the log named on the command line."""
    log = Path(sys.argv[1])
    baseline, count = json_seconds(log)
    print(1e6 * pipeline_seconds(log.parent.parent) / count, 1e6 * baseline / count)


if __name__ == "__main__":
    main()
