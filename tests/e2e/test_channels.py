"""Real runs seen through each kind of channel alone: the same top finding, or silence where nothing is wrong.

The rows of a recorded console are written as its framework's other channels hold them: the Trainer's state file, event
files by a real writer, wandb's local log by wandb's client, JSON lines. What must be found stands in the labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from tensorboardX import SummaryWriter

from benchmarks.channels import CHANNELS, NOW, judged
from benchmarks.score import RunLabel, read_label
from grpo_watch.catalogue import catalogue
from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.records import RawRow, Tick
from grpo_watch.pipeline.offline import replay
from grpo_watch.pipeline.open_run import open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.discovery.discover import discover
from tests.support.bundles import labels, unpack
from tests.support.tracker_files import mlflow, mlflow_files, swanlab
from tests.support.wandb_offline import job

RUNS = (
    "trl-0.24.0-01-healthy-beta",
    "trl-0.24.0-08-frozen-noop-step",
    "trl-1.16.0-02-healthy-nobeta",
    "trl-1.16.0-09-frozen-lr0",
    "trl-1.16.0-10-frozen-zeroed-grads",
    "trl-1.16.0-13-const-reward",
    "trl-1.16.0-14-nan-reward",
)
Row = tuple[int, Mapping[str, float]]


def logged(log: Path) -> list[Row]:
    """Step and numbers of each training row of a console."""
    source = ConsoleSource("log", log, [log.parent])
    items = [*source.poll(None), *source.finish()]
    rows = [item for item in items if isinstance(item, RawRow) and "loss" in item.values]
    return [(row.step or 0, {key: value for key, value in row.values.items() if value is not None}) for row in rows]


def jsonl(folder: Path, rows: Sequence[Row]) -> None:
    text = "".join(json.dumps({**values, "step": step}) + "\n" for step, values in rows)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def state(folder: Path, rows: Sequence[Row]) -> None:
    (folder / "checkpoint-100").mkdir()
    history = [{**values, "step": step} for step, values in rows]
    reported = {"global_step": rows[-1][0], "log_history": history, "logging_steps": 1}
    (folder / "checkpoint-100/trainer_state.json").write_text(json.dumps(reported), encoding="utf-8")


def tfevents(folder: Path, rows: Sequence[Row]) -> None:
    """Tags as transformers writes them."""
    writer = SummaryWriter(str(folder / "runs"))
    for step, values in rows:
        for key, value in values.items():
            writer.add_scalar(f"train/{key}", value, step)
    writer.close()


def wandb(folder: Path, rows: Sequence[Row]) -> None:
    with job(folder) as running:
        for step, values in rows:
            running.log(train__global_step=step, **{f"train__{key}".replace("/", "__"): v for key, v in values.items()})
        running.finish()


WRITERS: Mapping[str, Callable[[Path, Sequence[Row]], None]] = {"jsonl": jsonl, "state": state, "tfevents": tfevents}


def holds(folder: Path, channel: str, label: RunLabel) -> None:
    """Whether this channel alone gives the labelled verdict."""
    cell = judged(folder, label, CHANNELS[channel], load_rules([]), config=False)
    assert cell is not None, "the channel was not found"
    assert cell.holds(label), (cell, label)


def label_of(name: str) -> RunLabel:
    return read_label({"id": name, "entry": name, **{key: labels()[name][key] for key in ("label", "must", "may")}})


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["log", *WRITERS])
@pytest.mark.parametrize("name", RUNS)
def test_each_channel_alone_gives_the_labelled_verdict(name: str, channel: str, tmp_path: Path) -> None:
    run = unpack(name, tmp_path)
    if channel in WRITERS:
        WRITERS[channel](run, logged(run / "train.log"))
    holds(run, channel, label_of(name))


TRACKERS: Mapping[str, tuple[str, Callable[[Path, Sequence[Row]], object]]] = {
    "swanlab 0.10": ("swanlab", swanlab),
    "swanlab 0.7": ("swanlab", partial(swanlab, old=True)),
    "mlflow": ("mlflow", lambda folder, rows: mlflow(folder / "mlflow.db", rows)),
    "mlflow's files": ("", mlflow_files),
}


@pytest.mark.slow
@pytest.mark.parametrize("tracker", TRACKERS)
@pytest.mark.parametrize("name", ["trl-0.24.0-01-healthy-beta", "trl-0.24.0-08-frozen-noop-step", *RUNS[2:4]])
def test_a_tracker_alone_gives_the_findings_of_json_lines(name: str, tracker: str, tmp_path: Path) -> None:
    """A frozen policy and a healthy twin, each rule at the same step."""
    rows = logged(unpack(name, tmp_path / "run") / "train.log")
    channel, write = TRACKERS[tracker]
    for folder, writer in (("lines", jsonl), ("tracker", write)):
        (tmp_path / folder).mkdir()
        writer(tmp_path / folder, rows)
    found = [found_in(tmp_path / folder) for folder in ("lines", "tracker")]
    assert found[0] == found[1]
    assert found[0][0] == ("critical" if "frozen" in name else "healthy")
    if channel:  # a folder of many files is not copied alone
        holds(tmp_path / "tracker", channel, label_of(name))


def found_in(folder: Path) -> tuple[str, list[tuple[object, ...]], set[str]]:
    """Verdict, findings with their steps, and the rules that are blind."""
    (report,) = check_runs(find_runs([str(folder)])[0], load_rules([]), {}, Tick(NOW, live=False))
    (run,) = document([report])["runs"]
    findings = [(each["rule"], each["severity"], each["first_step"], each["fired_step"]) for each in run["findings"]]
    return run["verdict"], findings, {rule["rule"] for rule in run["rules"] if rule["status"] == "blind"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trl-1.16.0-02-healthy-nobeta", "trl-1.16.0-13-const-reward"])
def test_wandbs_own_log_alone_gives_the_labelled_verdict(name: str, tmp_path: Path) -> None:
    run = unpack(name, tmp_path)
    wandb(run, logged(run / "train.log"))
    holds(run, "wandb", label_of(name))


def test_all_channels_at_once_are_one_run_without_contradiction(tmp_path: Path) -> None:
    """One run, each row once, and no value of one channel against another's."""
    run = unpack("trl-1.16.0-09-frozen-lr0", tmp_path)
    rows = logged(run / "train.log")
    for write in WRITERS.values():
        write(run, rows)
    (found,) = discover(run)
    pipeline = Pipeline("run", load_rules([]), catalogue())
    opened = open_run(found, pipeline)
    for _ in replay(opened, pipeline, Tick(NOW, live=False)):
        pass
    opened.close()
    assert len({source.kind for source in opened.sources if source.kind is not None}) == 4
    assert pipeline.snapshot().rows == len(rows)
    assert pipeline.assembler.agreement.summary() == ""
