"""``grpo-watch sources`` over a small ms-swift run made of real rows."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from grpo_watch.cli import sources
from grpo_watch.cli.main import run_cli
from grpo_watch.cli.sources import _gave
from grpo_watch.sources.base import Skip, SourceStats
from grpo_watch.sources.discovery.discover import ChannelContent, FoundChannel
from grpo_watch.sources.discovery.unread import NOTHING

ROWS = Path(__file__).parents[1] / "frameworks" / "rows" / "ms-swift-4.6.0-warmup.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One output folder with eight rows, a half-written ninth, arguments and an event file."""
    out = tmp_path / "exp" / "output" / "v0-20261121-084049"
    (out / "runs").mkdir(parents=True)
    shutil.copy(ROWS, out / "logging.jsonl")
    with (out / "logging.jsonl").open("a") as log:
        log.write('{"loss": 0.1, "my_own": 3.0, "global_step/max_steps": "9/60"}\nnonsense\n')
    (out / "args.json").write_text(json.dumps({"rlhf_type": "grpo", "swift_version": "4.6.0", "beta": 0.04}))
    (out / "runs" / "events.out.tfevents.1795250449.vm.1.0").write_bytes(b"")
    return tmp_path / "exp"


def test_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Framework, version, channels with what they gave, settings with origins, unknown keys, rules."""
    assert run_cli(["sources", str(run), "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert (found["run"], found["framework"], found["framework_version"], found["steps"]) == (
        "exp",
        "ms-swift",
        "4.6.0",
        9,
    )
    assert found["settings"]["beta"] == {"value": 0.04, "origin": "args.json"}
    assert found["unknown_keys"] == ["my_own"]
    channels = {channel["kind"]: channel for channel in found["channels"] if channel["records"] or not channel["read"]}
    assert channels["metrics jsonl"]["skipped"] == {"not-json": 1}
    rules = {rule["rule"]: rule for rule in found["rules"]}
    assert rules["kl-stuck-at-zero"]["status"] == "ok"
    assert rules["parameters-unchanged"]["status"] == "blind"
    assert rules["parameters-unchanged"]["reason"]


def test_settings_are_shown_at_their_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no file of the name that this channel has."""
    assert run_cli(["sources", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "run-config" not in shown
    assert "  output/v0-20261121-084049/\n" in shown


def test_piped_output_is_never_wrapped(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reason, or a path, is on one line whatever the width of the terminal is called."""
    monkeypatch.setenv("COLUMNS", "40")
    assert run_cli(["sources", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        "needs logprob_gap_rollout, or" in line and line.endswith("probability_error_rollout)") for line in lines
    )
    assert all(line == line.rstrip() for line in lines)


def test_text(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for people; plain where the output is no terminal."""
    assert run_cli(["sources", str(run)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("exp  ms-swift 4.6.0")
    assert "output/v0-20261121-084049/logging.jsonl\n" in text
    assert "tensorboard events: metric rows, settings, 0 records" in text
    assert "unknown metrics, kept as raw:<key>: my_own" in text
    assert "\x1b[" not in text


def test_it_is_chinese_where_the_settings_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the channels are called, names and what a file holds stay; ``check`` says the same of skipped lines."""
    monkeypatch.setenv("GRPO_WATCH_LANGUAGE", "zh")
    row = '{"step": %d, "reward": 0.5, "loss": 0.1}'
    (tmp_path / "logging.jsonl").write_text("\n".join([row % 1, "{torn", row % 2, row % 3, ""]), encoding="utf-8")
    assert run_cli(["sources", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "metrics jsonl：指标行，3 条记录，跳过 1 处（第一处：not-json: line 2: " in text
    assert re.search(r"\n  \d+ 条规则中有 \d+ 条能判断此任务\n  缺数据：.*（缺少 checkpoints，或 probe）\n", text)
    run_cli(["check", str(tmp_path)])
    assert "  logging.jsonl：跳过 1 处不是合法 JSON；第一处：not-json: line 2: " in capsys.readouterr().out


def another_job(run: Path) -> None:
    """The console of another job in the folder of a run, five of its rows."""
    rows = (f"{{'loss': 9.5, 'reward': 0.1, 'global_step/max_steps': '{step}/60'}}" for step in range(3, 8))
    (run / "train.log").write_text("[INFO:swift] start\n" + "\n".join(rows) + "\n", encoding="utf-8")


@pytest.mark.parametrize("shown_as", ["text", "markdown", "html"])
def test_notes_are_chinese_in_every_report(
    shown_as: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPO_WATCH_LANGUAGE", "zh")
    another_job(run)
    run_cli(["check", str(run), "--format", shown_as])
    assert re.search(
        r"train\.log 与本任务的行在多数共同步上矛盾，不用它补任何一步：第 3 步：loss 在", capsys.readouterr().out
    )


def test_contradicting_channels_are_reported_and_are_no_finding(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A console of another job in the folder: its loss of 9.5 at step 3 is not the JSON lines' 0.0 to four digits."""
    another_job(run)
    assert run_cli(["sources", str(run)]) == 0
    output = capsys.readouterr().out.replace("\n", " ")
    assert "train.log contradicts the run's rows at most of their steps" in output
    assert "step 3: loss is" in output
    run_cli(["check", str(run), "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert any("step 3: loss is" in problem for problem in found["problems"])
    assert not [finding for finding in found["findings"] if "contradict" in finding["summary"]]


def test_a_network_file_system_is_reported(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "network_type", lambda _: "nfs4")
    assert run_cli(["sources", str(run)]) == 0
    assert "on a network file system (nfs4): files are polled" in capsys.readouterr().out


def test_nothing_and_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty folder ends with 3 and a sentence, a missing path with 2."""
    assert run_cli(["sources", str(tmp_path)]) == 3
    output = " ".join(capsys.readouterr().out.split())
    assert output == f"no run found in {tmp_path} {tmp_path}: {NOTHING}: the folder holds no file"
    assert run_cli(["check", str(tmp_path)]) == 3
    output = " ".join(capsys.readouterr().out.split())
    assert output == f"nothing to check: no run found problem: {tmp_path}: {NOTHING}: the folder holds no file"
    assert run_cli(["sources", str(tmp_path / "missing")]) == 2
    assert "no such file or folder" in capsys.readouterr().err


def test_settings_hold_as_for_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table whose columns the settings explain is read; what they and ``--set`` say is a setting of the run."""
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("iter,avg_r\n1,0.25\n2,0.5\n")
    Path("grpo-watch.yaml").write_text(
        "runs: [{path: mine.csv, columns: {step: iter, reward_mean: avg_r}, settings: {beta: 0.04}}]\n"
    )
    assert run_cli(["sources", "mine.csv", "--format", "json", "--set", "num_generations=8"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert found["steps"] == 2
    assert [found["settings"][name]["value"] for name in ("beta", "num_generations")] == [0.04, 8]
    Path("other.yaml").write_text("rules: [gone.yaml]\n")
    assert run_cli(["sources", "mine.csv", "--config", "other.yaml"]) == 2
    assert "gone.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "expected"), [("", "1 skipped"), ("row 3: no step", "1 skipped (first: row 3: no step)")]
)
def test_a_skip_without_an_example_has_no_empty_parenthesis(first: str, expected: str) -> None:
    stats = SourceStats(first_bad=first)
    stats.skipped[next(iter(Skip))] = 1
    gave = _gave(FoundChannel("a", ChannelContent.JSONL, Path("a")), stats, "en")
    assert gave == f"metric rows, 0 records, {expected}"
