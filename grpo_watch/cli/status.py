"""``grpo-watch status``: asks the running daemon what it watches, what fires, and how much could be judged."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo_watch.cli.daemon_client import DaemonClient, noted_address
from grpo_watch.cli.terminal import print_json
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.snapshot import WORST_FIRST, RunVerdict
from grpo_watch.report.blindness import LABELS
from grpo_watch.safe_text import visible

NO_DAEMON = 3
SCHEMA = "grpo-watch/status/1"


def status_command(given: Namespace) -> int:
    """Print the state of the daemon at the configured address; returns 3 where none answers.

    Raises:
        ConfigError: the settings, or the token that they name, can't be used.
    """
    listen, state_dir = given.listen, given.state_dir
    if listen is None and state_dir is not None:
        listen = noted_address(state_dir)
    client = DaemonClient(load_settings({"listen": listen, "state_dir": state_dir}, config=given.config).settings)
    try:
        listed, alerts = client.ask("/api/v1/runs"), client.ask("/api/v1/alerts")["alerts"]
        runs, problems = listed["runs"], listed.get("problems", [])
    except (OSError, ValueError, KeyError) as problem:
        sys.stderr.write(f"grpo-watch: {client.why_not(problem)}\n")
        return NO_DAEMON
    if given.format == "json":
        print_json({"schema": SCHEMA, "runs": runs, "alerts": alerts, "problems": problems})
    else:
        lines = [*_lines(runs, verbose=given.verbose > 0), *(f"problem: {problem}" for problem in problems)]
        lines += [f"page: {client.link}"] if client.link else []
        sys.stdout.writelines(f"{visible(line)}\n" for line in lines)
    return 0


def _lines(runs: Sequence[Mapping[str, Any]], *, verbose: bool) -> Iterator[str]:
    """One line per run, worst first, and one per finding that fires or that the verdict still counts."""
    if not runs:
        yield "no runs found yet"
    for run in sorted(runs, key=_urgency):
        goal = f" of {run['max_steps']}" if run["max_steps"] else ""
        going_on = "running" if run["active"] else "ended"
        yield f"{run['run']}: {run['headline']}, {going_on}, step {run['step']}{goal} · {run['coverage']['text']}"
        for found in run["firing"]:
            yield f"  {found['severity']}: {found['rule']} since step {found['first_step']}: {found['summary']}"
        for found in run["resolved"]:
            yield f"  {found['severity']}, over: {found['rule']} {found['since']}: {found['summary']}"
        yield from (f"  early sign: {sign['rule']}: {sign['text']}" for sign in run["early_signs"])
        yield from (f"  {caveat}" for caveat in run["caveats"])
        yield from _unable(run["rules"], verbose=verbose)


def _urgency(run: Mapping[str, Any]) -> tuple[int, bool, str]:
    verdict = RunVerdict(run["verdict"])
    return WORST_FIRST.index(verdict), not run["active"], run["run"]


def _unable(rules: Sequence[Mapping[str, Any]], *, verbose: bool) -> Iterator[str]:
    """Broken rules; with ``verbose`` the blind ones too, by kind and reason."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        if rule["status"] == "broken" or (verbose and rule["status"] == "blind"):
            by_reason.setdefault((rule["blindness"] or rule["status"], rule["text"]), []).append(rule["rule"])
    for (kind, reason), names in by_reason.items():
        yield f"  {LABELS.get(kind, kind)}: {', '.join(names)} ({reason})"
