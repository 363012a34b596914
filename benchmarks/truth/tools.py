"""The tools that are compared. A tool is a class: its name, its package, how to call it, how to read its answer."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
ROWS_FILE = "metrics.jsonl"
CRITICAL, WARNING, QUIET = "critical", "warning", ""


class UnreadError(Exception):
    """The tool answered, but judged nothing."""


def worst(severities: Iterable[str]) -> str:
    """The highest of severities in any tool's spelling: ``CRITICAL``, ``WARNING`` or ``QUIET``."""
    found = {severity.lower() for severity in severities}
    if found & {"critical", "error"}:
        return CRITICAL
    return WARNING if found & {"warning", "warn"} else QUIET


class Tool(ABC):
    """A command that is given a run and answers in JSON. ``package`` is installed into an environment of its own."""

    name: str
    package: str | None = None

    def write(self, rows: Sequence[Row], folder: Path) -> Path:
        """Write the rows as the tool reads them; here a JSON object per line with the trainer's own keys."""
        path = folder / ROWS_FILE
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    @abstractmethod
    def commands(self, programs: Path, path: Path) -> list[list[str]]:
        """What to run, one after the other, for what ``write`` wrote; the last one prints the answer."""

    @abstractmethod
    def severity(self, answer: Any) -> str:
        """The worst severity of a JSON answer.

        Raises:
            UnreadError: the tool could not judge the run.
        """


class GrpoWatch(Tool):
    """This checkout, given the same rows as the others."""

    name = "grpo-watch, rows alone"

    def commands(self, programs: Path, path: Path) -> list[list[str]]:
        """``check``, long after every run."""
        options = ["--format", "json", "--fail-on", "never", "--now", "2027-01-01T00:00:00Z"]
        return [[str(programs / "python"), "-m", "grpo_watch", "check", str(path), *options]]

    def severity(self, answer: Any) -> str:
        """The worst finding of any run that was judged."""
        judged = [run for run in answer["runs"] if run["verdict"] not in {"not-evaluable", "too-short"}]
        if not judged:
            raise UnreadError("not evaluable")
        return worst(finding["severity"] for run in judged for finding in run["findings"])


class RlDoctor(Tool):
    """rl-doctor: detectors for GRPO and RLVR."""

    name = package = "rldoctor"

    def commands(self, programs: Path, path: Path) -> list[list[str]]:
        """``rl-doctor diagnose``."""
        return [[str(programs / "rl-doctor"), "diagnose", str(path), "--format", "json"]]

    def severity(self, answer: Any) -> str:
        """A detector without its metrics is skipped."""
        severities = [finding["severity"] for finding in answer["findings"]]
        if all(severity == "SKIPPED" for severity in severities):
            raise UnreadError("every detector was skipped")
        return worst(severities)


class RunMedic(Tool):
    """runmedic: checks for any training."""

    name = package = "runmedic"

    def commands(self, programs: Path, path: Path) -> list[list[str]]:
        """``runmedic diagnose``."""
        return [[str(programs / "runmedic"), "diagnose", str(path), "--json"]]

    def severity(self, answer: Any) -> str:
        """A list of runs."""
        if not answer:
            raise UnreadError("no run found")
        return worst(finding["severity"] for run in answer for finding in run["findings"])


class TrainSpotter(Tool):
    """trainspotter: loss curves of any training."""

    name = package = "trainspotter"

    def commands(self, programs: Path, path: Path) -> list[list[str]]:
        """``trainspotter analyze``."""
        return [[str(programs / "trainspotter"), "analyze", str(path), "--output", "json"]]

    def severity(self, answer: Any) -> str:
        """One run."""
        if not answer["run"]["metrics"]:
            raise UnreadError("no metric found")
        return worst(finding["severity"] for finding in answer["findings"])


class RlProbe(Tool):
    """rlprobe: reads its own recordings alone, so the rows are recorded with its own names first."""

    name = package = "rlprobe"
    NAMES: Mapping[str, str] = {
        "reward": "reward_mean",
        "reward_std": "reward_std",
        "frac_reward_zero_std": "zero_variance_group_frac",
        "kl": "kl_mean",
        "entropy": "entropy_mean",
        "clip_ratio": "clip_fraction",
        "clip_ratio/region_mean": "clip_fraction",
        "loss": "loss",
        "learning_rate": "lr",
        "grad_norm": "grad_norm",
        "completion_length": "completion_len_mean",
        "completions/mean_length": "completion_len_mean",
        "completions/max_length": "completion_len_max",
        "completions/clipped_ratio": "truncation_rate",
        "step_time": "step_time_s",
    }
    """What its own callback does with the keys of TRL."""
    RECORD = (
        "import json, sys; from rlprobe.recorder import Recorder\n"
        "with Recorder(sys.argv[2], algorithm='grpo', capture_env=False) as recorder:\n"
        "    for line in open(sys.argv[1]):\n"
        "        row = json.loads(line); recorder.log_step(int(row.pop('step')), **row)\n"
    )

    def write(self, rows: Sequence[Row], folder: Path) -> Path:
        """Rows under rlprobe's names; others are left out."""
        return super().write([self._renamed(row) for row in rows], folder)

    def _renamed(self, row: Row) -> Row:
        prefix, suffix = "rewards/", "/mean"
        parts = {key[len(prefix) : -len(suffix)]: row[key] for key in row if key.startswith(prefix) and suffix in key}
        known = {self.NAMES[key]: value for key, value in row.items() if key in self.NAMES}
        return {"step": row["step"], **known, **({"reward_components": parts} if parts else {})}

    def commands(self, programs: Path, path: Path) -> list[list[str]]:
        """Record, then ``rlprobe doctor``."""
        recording = str(path.with_suffix(".recording"))
        record = [str(programs / "python"), "-c", self.RECORD, str(path), recording]
        return [record, [str(programs / "rlprobe"), "doctor", recording, "--json"]]

    def severity(self, answer: Any) -> str:
        """A list of findings."""
        return worst(finding["severity"] for finding in answer)


TOOLS: tuple[type[Tool], ...] = (GrpoWatch, RlDoctor, RunMedic, TrainSpotter, RlProbe)
