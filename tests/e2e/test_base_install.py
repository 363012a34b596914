"""An installation without extras: the packages that pyproject.toml lists are enough, and unread Parquet is reported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from grpo_watch.cli.main import run_cli
from grpo_watch.daemon.run_reader import RunReader, WatchOptions
from grpo_watch.extras import install
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.sources.completions.parquet import CompletionsParquetSource
from grpo_watch.sources.discovery.discover import Discoverer
from tests.support.bundles import unpack
from tests.support.live import Done
from tests.support.process import PATIENCE

ROOT = Path(__file__).parents[2]
BLOCKED = """
import json, os, sys
sys.modules.update(dict.fromkeys(json.loads(os.environ["BLOCKED"])))  # importing one of these is now an ImportError
from grpo_watch.cli.main import run_cli
sys.exit(run_cli(sys.argv[1:]))
"""


def closure(wanted: Collection[str]) -> set[str]:
    """The distributions that these requirements install here, and what those require in turn."""
    left, found = [Requirement(each) for each in wanted], set[str]()
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        if name in found or not (one.marker is None or one.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            left += [Requirement(each) for each in requires(name) or ()]
        except PackageNotFoundError:
            raise AssertionError(f"{name} is required, and not installed") from None
    return found


def declared() -> list[str]:
    """The packages that every installation has."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = text.partition("\ndependencies = [\n")[2].partition("\n]")[0]
    return re.findall(r'^  "([^"]+)"', listed, re.MULTILINE)


def foreign_modules() -> list[str]:
    """Importable modules that come with the tests and development tools only."""
    base = closure(declared())
    return [
        module
        for module, owners in packages_distributions().items()
        if module != "grpo_watch" and not base & {canonicalize_name(owner) for owner in owners}
    ]


def bare(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command where only the packages of a plain installation can be imported."""
    env = os.environ | {"BLOCKED": json.dumps(foreign_modules()), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BLOCKED, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture
def _no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*filter(lambda name: name.partition(".")[0] == "pyarrow", sys.modules), "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)


def test_heavy_packages_are_no_part_of_it() -> None:
    assert {"pyarrow", "pandas", "wandb", "apprise"} <= set(foreign_modules())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy run with Parquet dumps, and a frozen one without."""
    folder = tmp_path_factory.mktemp("runs")
    unpack("trl-1.16.0-07-healthy-ddp2", folder).rename(folder / "healthy")
    unpack("trl-1.16.0-09-frozen-lr0", folder).rename(folder / "frozen")
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("check", "frozen", "--format", "html"), 1, "learning-rate-zero"),
        (("diff", "healthy", "frozen"), 1, "learning_rate"),
        (("rules", "list"), 0, "kl-stuck-at-zero"),
    ],
)
def test_commands_run_without_extras(arguments: tuple[str, ...], code: int, part: str, runs: Path) -> None:
    done = bare(*(runs / each if each in {"healthy", "frozen"} else each for each in arguments))
    assert (done.returncode, part in done.stdout) == (code, True), done.stdout[-2000:] + done.stderr


@pytest.mark.usefixtures("_no_pyarrow")
def test_a_run_with_parquet_dumps_says_what_it_lacks(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The channel names the command that installs it; the console's tables are read instead."""
    run_cli(["check", str(runs / "healthy"), "--format", "json"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    (dumps,) = [channel for channel in run["channels"] if channel["kind"] == "completions parquet"]
    assert (dumps["records"], dumps["problem"]) == (0, f"Parquet is not read without pyarrow: {install('parquet')}")
    assert run["verdict"] == "healthy"
    run_cli(["check", str(runs / "healthy")])
    assert f"Parquet is not read without pyarrow: {install('parquet')}" in capsys.readouterr().out


def test_dumps_are_read_from_the_first_once_pyarrow_is_there(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = runs / "healthy" / "output" / "completions"
    source = CompletionsParquetSource("completions", folder, [folder.parent], lambda: None)
    before = source.cursor()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow", None)
        assert [*source.poll(None), *source.finish()] == []
        assert (source.cursor(), bool(source.stats.problem)) == (before, True)
    assert len([*source.poll(None), *source.finish()]) == len(list(folder.glob("*.parquet")))
    assert source.stats.problem == ""


def test_a_channel_that_comes_later_hides_nothing(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason why rules are blind stays while other channels of the run are opened."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    copy = shutil.copytree(runs / "healthy", tmp_path / "run")
    (copy / "train.log").rename(tmp_path / "train.log")
    pipeline = Pipeline("run", (), {})
    reader = RunReader(Discoverer().discover(copy)[0], WatchOptions(), dict, Done)
    reader.open(pipeline)
    (tmp_path / "train.log").rename(copy / "train.log")
    reader.found = Discoverer().discover(copy)[0]
    assert any(announced for announced in reader.open(pipeline))
    assert install("parquet") in pipeline.state.refused["completions"]
    reader.close()
