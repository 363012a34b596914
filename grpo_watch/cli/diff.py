"""``grpo-watch diff``: two runs side by side, and the step at which they part."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from functools import partial

from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.cli.stdin_run import taken_in
from grpo_watch.cli.terminal import print_json, printed
from grpo_watch.cli.wandb_setup import discovering
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.records import Tick
from grpo_watch.errors import UsageError
from grpo_watch.report.check_document import RunReport
from grpo_watch.report.compare import compare, document
from grpo_watch.report.text import render_comparison
from grpo_watch.rules.packs import rules_for

EXIT = {"same": 0, "parted": 1, "not-evaluable": 3}
NAMED = 5
"""Runs named where a path holds several."""


def diff_command(given: Namespace) -> int:
    """Print where the two runs part; returns 0 (they do not), 1 (they do) or 3 (too few common rows).

    Raises:
        UsageError: a path is missing or holds no run, or several; the settings or a rule file can't be used.
    """
    chosen = load_settings({"rules": given.rules}, config=given.config).settings
    comparison = compare(_report(given.first, chosen), _report(given.second, chosen))
    if given.format == "json":
        print_json(document(comparison))
    else:
        sys.stdout.write(printed(partial(render_comparison, comparison), color=given.color))
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
