"""A file of a known kind in an unknown format: ``sources`` says so with the first offending place, for every kind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.sources.discovery.discover import ChannelContent

BAR = "\r  1%|          | 1/100 [00:00<00:32,  3.05it/s]"
STEPS = range(1, 20)


def text(name: str, content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")

    return write


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet(folder: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415  heavy
    from pyarrow import parquet as files  # noqa: PLC0415  heavy

    (folder / "completions").mkdir()
    table = pa.table({"question": ["a"] * 4, "answer": ["b"] * 4})
    files.write_table(table, folder / "completions/completions_00001.parquet")


def trackio(folder: Path, column: str, metrics: str) -> None:
    """A database with trackio's tables, but other contents."""
    with closing(sqlite3.connect(folder / "project.db")) as database:
        database.execute(
            f"CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, {column})"
        )
        database.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT)")
        database.execute("INSERT INTO configs VALUES (1, 'a', '{}')")
        database.execute("INSERT INTO metrics VALUES (1, '2026-11-21T08:00:00', 'a', 1, ?)", (metrics,))
        database.commit()


UNKNOWN: list[tuple[ChannelContent, Callable[[Path], None], str]] = [
    (
        ChannelContent.CONSOLE,
        text("train.log", f"GRPOTrainer\n{BAR}\n" + "".join(f"it={n} | policy_loss=0.{n} | acc=1e-3\n" for n in STEPS)),
        (
            "no metric row could be parsed; "
            "the first line that looks like one is line 3: it=1, policy_loss=0.1, acc=1e-3"
        ),
    ),
    (
        ChannelContent.JSONL,
        text("logging.jsonl", lines(*({"iter": n, "all": [["loss", 0.1]]} for n in STEPS))),
        "not-a-row: line 1",
    ),
    (
        ChannelContent.TRAINER_STATE,
        text("checkpoint-1/trainer_state.json", '{"history": [{"loss": 1}]}'),
        "no list log_history",
    ),
    (ChannelContent.TRAINER_STATE, text("trainer_state.json", '{"log_history": {"loss": [1]}}'), "no list log_history"),
    (
        ChannelContent.TRAINER_STATE,
        text("trainer_state.json", '{"log_history": [{"at": 1, "l": 2}]}'),
        "no-step: an entry",
    ),
    (
        ChannelContent.COMPLETIONS_JSONL,
        text("completions.jsonl", lines(*({"iteration": n, "question": ["p"]} for n in STEPS))),
        "not-a-row: line at byte 0",
    ),
    (ChannelContent.COMPLETIONS_PARQUET, parquet, "completions_00001.parquet: no columns prompt and completion"),
    (
        ChannelContent.CHECKPOINTS,
        text("checkpoint-1/pytorch_model.bin", "no tensors"),
        "checkpoint-1: pytorch_model.bin: no file of torch.save",
    ),
    (ChannelContent.RUN_CONFIG, text("args.json", '["--beta", "0.04"]'), "args.json: not a JSON object"),
    (
        ChannelContent.RUN_CONFIG,
        text("args.json", '{"kl": 1, "deep": {"beta": 0.1}}'),
        "args.json: none of its keys is a setting",
    ),
    (ChannelContent.TRACKIO, partial(trackio, column="payload", metrics='{"loss": 1}'), "no such column: metrics"),
    (ChannelContent.TRACKIO, partial(trackio, column="metrics", metrics="loss=1"), "not-json: row 1"),
    (
        ChannelContent.TRACKIO,
        partial(trackio, column="metrics", metrics='{"all": {"loss": 1}}'),
        "not-a-row: row 1: no number",
    ),
    (ChannelContent.TABLE, text("m.csv", "step,loss\n" + "s1,0.1\n" * 9), "no-step: line 2: no column holds its step"),
    (ChannelContent.TABLE, text("m.csv", "step,loss\n" + "1,x\n" * 9), "not-a-row: line 2: no number in it"),
    (
        ChannelContent.TABLE,
        text("m.html", "<table><tr><th>Step</th><th>Loss</th></tr><tr><td>1</td></tr></table>"),
        "not-a-row: no table with a Step column",
    ),
    (
        ChannelContent.TABLE,
        text("m.html", "<th>Step</th><p>1</p>"),
        "not-a-row: no table with a Step column",
    ),
    (
        ChannelContent.COMPLETION_DUMPS,
        text("rollouts/1.jsonl", lines(*({"question": "a", "answer": str(n)} for n in STEPS))),
        "not-a-row: rollouts: no file begins like a dump of a known framework",
    ),
    (
        ChannelContent.TFEVENTS,
        text("events.out.tfevents.1795248848.vm.1.0", "no records at all " * 20),
        "unreadable: byte 0",
    ),
    (ChannelContent.WANDB_OFFLINE, text("run-x.wandb", "SQLite format 3 and so on"), "its first bytes are others"),
]


@pytest.mark.parametrize(("what", "write", "reported"), UNKNOWN)
def test_an_unknown_format_is_reported_with_its_place(
    what: ChannelContent,
    write: Callable[[Path], None],
    reported: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path)
    if what is ChannelContent.RUN_CONFIG:
        text("train.log", "{'loss': 0.1, 'reward': 0.2, 'kl': 0.0}\n")(tmp_path)
    assert run_cli(["sources", str(tmp_path), "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    shown = [*run["problems"], *(str(channel[key]) for channel in run["channels"] for key in ("first_bad", "problem"))]
    assert what.value in {channel["kind"] for channel in run["channels"]}
    assert any(reported in each for each in shown), shown


def test_a_log_without_rows_or_anything_like_them_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that died while it was loading: no line looks like a row, and none of its text is shown."""
    text("train.log", f"using trl\nprompt: what is x=3?\n{BAR}\nTraceback (most recent call last):\n")(tmp_path)
    assert run_cli(["sources", str(tmp_path), "--format", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["problems"] == []
