"""``grpo-watch diff`` over bundled real runs: where they part is known from how they were made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch import check
from grpo_watch.cli.main import run_cli
from grpo_watch.report.compare import compare
from grpo_watch.report.lines import columns, laid_out
from grpo_watch.report.text import render_comparison
from tests.support.bundles import unpack


def diff_of(capsys: pytest.CaptureFixture[str], a: Path, b: Path) -> tuple[int, dict]:  # type: ignore[type-arg]
    code = run_cli(["diff", str(a), str(b), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_learning_rate_of_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warm-up over 20 steps to 3e-4 against a rate of 0: step 1 applies 0 in both, step 2 a twentieth."""
    healthy = unpack("trl-1.16.0-03-healthy-warmup", tmp_path)
    frozen = unpack("trl-1.16.0-09-frozen-lr0", tmp_path)
    code, answer = diff_of(capsys, healthy, frozen)
    metrics = {metric["metric"]: metric for metric in answer["metrics"]}
    rate = metrics["learning_rate"]
    assert code == 1
    assert (answer["schema"], answer["verdict"], answer["parted_step"]) == ("grpo-watch/diff/1", "parted", 2)
    assert (rate["status"], rate["parted_step"], rate["b"], rate["noise"]) == ("parted", 2, 0.0, 0.0)
    assert rate["a"] == pytest.approx(3e-4 / 20)
    assert metrics["kl_reference"]["status"] == "parted"
    assert metrics["epoch"]["status"] == "same"
    lone = [finding for finding in answer["findings"] if finding["rule"] == "learning-rate-zero"]
    assert [(finding["only_in"], finding["counted"]) for finding in lone] == [("b", True)]


def test_a_run_that_crashed_and_went_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same run twice: nothing differs; what its restart discarded does not count."""
    run = unpack("trl-1.16.0-19-crash-resume", tmp_path)
    code, answer = diff_of(capsys, run, run)
    assert (code, answer["verdict"], answer["parted_step"]) == (0, "same", None)
    assert {metric["status"] for metric in answer["metrics"]} <= {"same", "too-few"}
    assert (answer["settings"], answer["findings"]) == ([], [])


def test_settings_with_their_origins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two logs with the same rows beside arguments that differ."""
    rows = [
        {"loss": 0.1, "reward": 0.5 + 0.01 * (n % 3), "kl": 0.01, "global_step/max_steps": f"{n}/9"}
        for n in range(1, 10)
    ]
    for name, beta in (("a", 0.04), ("b", 0.1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "logging.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (tmp_path / name / "args.json").write_text(
            json.dumps({"rlhf_type": "grpo", "beta": beta, "swift_version": "4.6.0"})
        )
    code, answer = diff_of(capsys, tmp_path / "a", tmp_path / "b")
    assert (code, answer["verdict"]) == (0, "same")
    (beta,) = [setting for setting in answer["settings"] if setting["setting"] == "beta"]
    assert beta == {
        "setting": "beta",
        "a": {"value": 0.04, "origin": "args.json"},
        "b": {"value": 0.1, "origin": "args.json"},
    }
    assert run_cli(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("SAME within noise\n")
    assert "settings that differ" in text


def test_too_few_common_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four rows each: no verdict, and the answer says so."""
    for name in ("a", "b"):
        rows = ({"loss": 0.1, "reward": 0.5, "kl": 0.01, "global_step/max_steps": f"{n}/9"} for n in range(1, 5))
        (tmp_path / name).mkdir()
        (tmp_path / name / "logging.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    code, answer = diff_of(capsys, tmp_path / "a", tmp_path / "b")
    assert (code, answer["verdict"], answer["common_steps"]["count"]) == (3, "not-evaluable", 4)


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What comes first for people: the step, by what, which run is which."""
    healthy = unpack("trl-1.16.0-03-healthy-warmup", tmp_path)
    frozen = unpack("trl-1.16.0-09-frozen-lr0", tmp_path)
    assert run_cli(["diff", str(healthy), str(frozen)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("PARTED at step 2  learning_rate")
    assert lines[1].split()[:3] == ["a", "trl-1.16.0-03-healthy-warmup", "healthy"]
    assert lines[2].split()[:3] == ["b", "trl-1.16.0-09-frozen-lr0", "critical"]
    assert any(line.split()[:4] == ["learning_rate", "step", "2", "1.5e-05"] for line in lines)


def test_in_a_narrow_terminal_the_tables_stay_in_their_columns(tmp_path: Path) -> None:
    """Where there are too few, each row is text."""
    name = "reward_function_mean[sum_of_vowels_and_format]"
    for run, scale in (("a", 1.0), ("b", 5.0)):
        rows = [{"step": step, "loss": 0.5, f"rewards/{name[21:-1]}/mean": scale * step} for step in range(1, 31)]
        (tmp_path / run).mkdir()
        (tmp_path / run / "logging.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    comparison = compare(check(tmp_path / "a", beta=0.04), check(tmp_path / "b", beta=0.0))
    wide, at_80, at_40 = (laid_out(render_comparison(comparison, width), width).splitlines() for width in (200, 80, 40))
    assert any(line.startswith(f"  {name}   step 4 ") for line in wide)
    assert f"{name}: parted at step 4 · a 4 · b 20" in " ".join(map(str.strip, at_80))
    assert "parted at step 4 · a 4 · b 20 · noise" in " ".join(map(str.strip, at_40))
    assert all(columns(line) <= width for lines, width in ((at_80, 80), (at_40, 40)) for line in lines)


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = unpack("trl-1.16.0-09-frozen-lr0", tmp_path / "many")
    unpack("trl-1.16.0-03-healthy-warmup", tmp_path / "many")
    (tmp_path / "empty").mkdir()
    assert run_cli(["diff", str(run), str(tmp_path / "nowhere")]) == 2
    assert run_cli(["diff", str(run), str(tmp_path / "empty")]) == 2
    assert run_cli(["diff", str(run), str(tmp_path / "many")]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[0].endswith("nowhere: no such file or folder")
    assert errors[1].endswith("empty: no run found")
    assert "holds 2 runs (trl-1.16.0-03-healthy-warmup, trl-1.16.0-09-frozen-lr0); name one" in errors[2]


def test_held_out_scores_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal training rows; each row of an evaluation says so in a field of its own, and one run scores less."""
    for name, score in (("a", 0.5), ("b", 0.25)):
        rows = [{"step": n, "loss": 0.1, "reward": 0.5 + 0.01 * (n % 3), "kl": 0.01} for n in range(1, 61)]
        tests = [{"step": n, "split": "eval", "reward": score + 0.001 * n} for n in range(5, 61, 5)]
        (tmp_path / name).mkdir()
        ordered = sorted([*rows, *tests], key=lambda row: (row["step"], "split" in row))
        (tmp_path / name / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ordered))
    code, answer = diff_of(capsys, tmp_path / "a", tmp_path / "b")
    parted = [(one["metric"], one["parted_step"]) for one in answer["metrics"] if one["status"] == "parted"]
    assert (code, parted) == (1, [("eval_score[reward]", 5)])
