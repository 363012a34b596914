"""The page about Python and its notebook are executed as they stand."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest

import grpo_watch
from grpo_watch.demo.replayer import replay_run
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.errors import UsageError
from grpo_watch.report.series import as_html, plot
from tests.support.bundles import unpack
from tests.support.markdown import ROOT
from tests.support.reports import EVIL, a_finding, a_report, a_series

HEALTHY, DUMPED = "trl-1.16.0-04-healthy-lora", "trl-1.16.0-11-dup-stride3"


@pytest.fixture
def beside_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds ``my-run`` (the demo's, frozen) and others."""
    replay_run(tmp_path / "my-run", lambda _: False, 1e9)
    unpack(HEALTHY, tmp_path)
    unpack(DUMPED, tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_page_says_what_happens(beside_runs: Path) -> None:
    page = doctest.DocTestParser().get_doctest((ROOT / "docs/python.md").read_text(), {}, "python.md", None, 0)
    assert len(page.examples) >= 15
    written: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(page, out=written.append)
    assert "".join(written) == ""


@pytest.mark.slow
def test_the_notebook_runs_and_ends_in_a_plot(beside_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("RUN", DUMPED)
    notebook = json.loads((ROOT / "examples/python.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["execution_count"], cell["outputs"]) for cell in cells] == [(None, [])] * 5
    names: dict[str, object] = {}
    for cell in cells:
        exec("".join(cell["source"]), names)  # noqa: S102  our own notebook
    assert len(names["figure"].axes) > 1  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_frames_hold_what_the_files_do(beside_runs: Path) -> None:
    """The duplicates of this run repeat with a stride of three: completion i is completion i + 3."""
    report = grpo_watch.check(DUMPED)
    assert report.verdict is grpo_watch.check_all([DUMPED])[0].verdict
    assert isinstance(report.findings[0], Finding)
    assert json.loads(report.to_json())["verdict"] == report.verdict.value
    completions = report.completions
    group = completions[(completions["step"] == completions["step"].max()) & (completions["group"] == 0)]
    texts = group["text"].tolist()
    assert texts[: len(texts) // 2] == texts[len(texts) // 2 :]
    logged = [json.loads(line) for file in (beside_runs / DUMPED).rglob("*.jsonl") for line in file.open()]
    assert report.metrics.index.get_level_values("step").max() == report.snapshot.step
    assert logged or list((beside_runs / DUMPED).rglob("*.parquet"))


@pytest.mark.slow
def test_one_run_and_several(beside_runs: Path) -> None:
    with pytest.raises(UsageError, match="holds 3 runs"):
        grpo_watch.check(".")
    assert len(grpo_watch.check_all(["."])) == 3
    (beside_runs / "empty").mkdir()
    with pytest.raises(UsageError, match="no run found"):
        grpo_watch.check("empty")
    with pytest.raises(UsageError, match="state 'over'"):
        grpo_watch.check(".", state="over")


def test_a_notebook_shows_no_markup_of_a_run() -> None:
    report = a_report(a_finding(summary=EVIL, hint=EVIL), run=EVIL)
    shown = as_html(report.snapshot)
    assert "<script" not in shown
    assert "<img" not in shown
    assert "kl-stuck-at-zero" in shown


def test_a_plot_names_metrics_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    report, series = a_report(a_finding()), a_series([{"kl_reference": 0.0}] * 12)
    assert len(plot(report.snapshot, series).axes) == 1
    with pytest.raises(UsageError, match=r"loss: not logged; logged are kl_reference"):
        plot(report.snapshot, series, ["loss"])
    with pytest.raises(UsageError, match="without its rows"):
        plot(report.snapshot, None)


def test_importing_it_imports_nothing_else() -> None:
    code = "import sys, grpo_watch, grpo_watch.callback; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = [name for name in done.stdout.split() if name.startswith("grpo_watch.")]
    assert [name for name in ours if not name.startswith("grpo_watch.probe")] == ["grpo_watch.callback"]
    assert {"numpy", "pandas", "pydantic"}.isdisjoint(done.stdout.split())
    with pytest.raises(AttributeError, match="no attribute 'checks'"):
        _ = grpo_watch.checks


def test_preflight_is_a_function_after_any_import_of_its_package() -> None:
    code = "import grpo_watch, grpo_watch.preflight.assess; print(grpo_watch.preflight(['swift', 'rlhf']).framework)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "ms-swift\n"
