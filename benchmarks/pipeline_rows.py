"""Times parse, normalise and detectors alone over the lines of one JSONL log, beside ``json.loads`` of them.

python benchmarks/pipeline_rows.py LOG          two numbers: microseconds per row of the pipeline, and of json.loads
python benchmarks/pipeline_rows.py --rows N     the same rows without a file: cost by tenth of the run, and by rule
python benchmarks/pipeline_rows.py --rows N --tenths    only the cost by tenth: normalise, then rules alone
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from make_run import CLIP, SWIFT_KEYS, rows

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.records import (
    ChannelKind,
    ChannelOpened,
    Item,
    MetricRow,
    RawRow,
    Record,
    RunConfig,
    Setting,
    Tick,
)
from grpo_watch.pipeline.assembler import Assembler
from grpo_watch.pipeline.offline import replay
from grpo_watch.pipeline.open_run import open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import Discoverer

RUN, CHANNEL = "run", "logging.jsonl"
BEGINNING: tuple[Item, ...] = (
    ChannelOpened(CHANNEL, ChannelKind.JSONL, shows_end=True),
    RunConfig("ms-swift", "4.6.0", {"beta": Setting(0.04, "args.json")}),
)
"""Fed before the rows: the channel, and the run's settings."""


def pipeline_seconds(folder: Path) -> float:
    """Seconds of this process from the first byte read to the last transition; all is imported and opened before."""
    found = Discoverer().discover(folder)[0]
    pipeline = Pipeline(RUN, load_rules([]), catalogue())
    opened = open_run(found, pipeline)
    start = time.process_time()
    for _ in replay(opened, pipeline, Tick(0.0, live=False)):
        pass
    return time.process_time() - start


def json_seconds(log: Path) -> tuple[float, int]:
    """Seconds of this process for reading the same lines with the standard library, and how many lines there are."""
    start = time.process_time()
    with log.open() as lines:
        count = sum(1 for line in lines if json.loads(line))
    return time.process_time() - start, count


def raw_rows(count: int) -> Iterator[RawRow]:
    """The rows that ``make_run`` writes, as its reader would give them, with an entropy."""
    for row in rows(count):
        values: dict[str, float | None] = {key: round(row[key], 8) for key in SWIFT_KEYS}
        values |= {f"clip_ratio/{name}": 0.0 for name in CLIP}
        values |= {"entropy/mean": round(row["entropy"], 8), "step_time": round(row["step_time"], 8)}
        values["epoch"] = round(row["epoch"], 8)
        yield RawRow(CHANNEL, ChannelKind.JSONL, int(row["step"]), values, max_steps=count, resolution=1e-8)


def watching() -> Pipeline:
    """A pipeline with the shipped rules that knows the run's settings."""
    pipeline = Pipeline(RUN, load_rules([]), catalogue())
    for item in BEGINNING:
        pipeline.feed(item)
    return pipeline


def records(count: int) -> Iterator[Record]:
    """The rows as the engine is fed them."""
    assembler = Assembler(RUN)
    for item in chain(BEGINNING, raw_rows(count)):
        yield from assembler.feed(item)


def by_tenth(count: int) -> list[float]:
    """Microseconds of this process per row of normalise and rules, for each tenth of the run (without making rows)."""
    pipeline, source, costs = watching(), raw_rows(count), []
    while chunk := list(islice(source, max(1, count // 10))):
        start = time.process_time()
        for row in chunk:
            pipeline.feed(row)
        costs.append(1e6 * (time.process_time() - start) / len(chunk))
    return costs


def rules_alone(count: int) -> float:
    """Microseconds of this process per row of the full pack: rows that are normalised already, engine and rules."""
    engine, made = Engine(RUN, load_rules([]), catalogue()), list(records(count))
    start = time.process_time()
    for record in made:
        engine.feed(record)
    return 1e6 * (time.process_time() - start) / count


def by_rule(count: int) -> Counter[str]:
    """Microseconds of this process per row of each rule, the clock's included."""
    engine, cost = Engine(RUN, load_rules([]), catalogue()), Counter[str]()
    state = engine.state
    for record in records(count):
        if not isinstance(record, MetricRow):
            engine.feed(record)
            continue
        start = time.process_time()
        state.take_row(record)
        cost["(what all rules share)"] += time.process_time() - start
        for monitor in state.readers(record):
            start = time.process_time()
            tuple(monitor.ask(record, state))
            cost[monitor.rule.name] += time.process_time() - start
    return Counter({name: 1e6 * seconds / count for name, seconds in cost.items()})


def main() -> None:
    """Time the log named on the command line, or rows without a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tenths", action="store_true", help="print the cost by tenth and of the rules alone, no more")
    options = parser.parse_args()
    if options.log is not None:
        baseline, count = json_seconds(options.log)
        print(1e6 * pipeline_seconds(options.log.parent.parent) / count, 1e6 * baseline / count)
        return
    tenths = by_tenth(options.rows)
    if options.tenths:
        print(rules_alone(min(options.rows, 20_000)), *tenths)
        return
    print(
        f"{options.rows:,} rows: {sum(tenths) / len(tenths):.1f} µs per row;", "by tenth", *(f"{t:.1f}" for t in tenths)
    )
    for name, cost in by_rule(min(options.rows, 100_000)).most_common():
        print(f"{cost:8.2f}  {name}")


if __name__ == "__main__":
    main()
