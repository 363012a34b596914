"""``grpo-watch diff``: two runs side by side, and the step at which they part."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.cli.options import columns
from grpo_watch.cli.stdin_run import taken_in
from grpo_watch.cli.wandb_setup import discovering
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.records import Tick
from grpo_watch.errors import UsageError
from grpo_watch.report.check_document import RunReport
from grpo_watch.report.compare import Comparison, compare, document
from grpo_watch.report.text import render_comparison
from grpo_watch.rules.packs import rules_for

EXIT = {"same": 0, "parted": 1, "not-evaluable": 3}
NAMED = 5
"""Runs named where a path holds several."""


def diff_command(
    first: str, second: str, output_format: str, rules: Sequence[Path], config: Path | None, color: bool
) -> int:
    """Print where the two runs part; returns 0 (they do not), 1 (they do) or 3 (too few common rows).

    Raises:
        UsageError: a path is missing or holds no run, or several; the settings or a rule file can't be used.
    """
    chosen = load_settings({"rules": list(rules)}, config=config).settings
    comparison = compare(_report(first, chosen), _report(second, chosen))
    if output_format == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document(comparison)), indent=1).decode() + "\n")
    else:
        sys.stdout.write(_as_text(comparison, color=color))
    return EXIT[comparison.verdict]


def _report(path: str, chosen: Settings) -> RunReport:
    """The one run at a path, judged, with its rows."""
    with taken_in([path]) as places, discovering(places, chosen) as discoverer:
        found, problems = find_runs(places, chosen, discoverer)
        if not found:
            raise UsageError(f"{path}: no run found" + "".join(f"; {problem}" for problem in problems))
        if len(found) > 1:
            names = ", ".join(run.name for run in found[:NAMED]) + (", …" if len(found) > NAMED else "")
            raise UsageError(f"{path}: holds {len(found)} runs ({names}); name one of them")
        return check_runs(
            found,
            rules_for(chosen),
            {},
            Tick(time.time(), live=False),
            chosen,
            recording=True,
        )[0]


def _as_text(comparison: Comparison, *, color: bool) -> str:
    written = StringIO()
    render_comparison(
        comparison, Console(file=written, force_terminal=color, no_color=not color, width=columns(), highlight=False)
    )
    return "".join(f"{line.rstrip()}\n" for line in written.getvalue().splitlines())
