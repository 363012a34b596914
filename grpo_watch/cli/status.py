"""``grpo-watch status``: asks the running daemon for its runs, findings and coverage."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from grpo_watch.cli.daemon_client import DaemonClient, noted_address
from grpo_watch.cli.terminal import print_json
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.snapshot import WORST_FIRST, RunVerdict
from grpo_watch.report.blindness import LABELS
from grpo_watch.report.words import say, sentence_words
from grpo_watch.safe_text import visible

NO_DAEMON = 3
SCHEMA = "grpo-watch/status/1"


def status_command(given: Namespace) -> int:
    """Print the state of the daemon at the configured address; returns 3 if none answers.

    Raises:
        ConfigError: the settings, or the token file in them, can't be used.
    """
    listen, state_dir = given.listen, given.state_dir
    if listen is None and state_dir is not None:
        listen = noted_address(state_dir)
    settings = load_settings({"listen": listen, "state_dir": state_dir}, config=given.config).settings
    client, say_so = DaemonClient(settings), partial(say, settings.language)
    try:
        listed, alerts = client.ask("/api/v1/runs"), client.ask("/api/v1/alerts")["alerts"]
        runs, problems = listed["runs"], listed.get("problems", [])
    except (OSError, ValueError, KeyError) as problem:
        sys.stderr.write(f"grpo-watch: {sentence_words(settings.language, client.why_not(problem), 'errors')}\n")
        return NO_DAEMON
    if given.format == "json":
        print_json({"schema": SCHEMA, "runs": runs, "alerts": alerts, "problems": problems})
    else:
        lines = [*_lines(runs, settings.language, verbose=given.verbose > 0)]
        lines += [] if listed.get("ready", True) else [say_so("still reading: other runs may follow")]
        lines += [say_so("problem: {what}", what=problem) for problem in problems]
        lines += [f"{say_so('page')}{say_so(': ')}{client.link}"] if client.link else []
        sys.stdout.writelines(f"{visible(line)}\n" for line in lines)
    return 0


def _lines(runs: Sequence[Mapping[str, Any]], language: str, *, verbose: bool) -> Iterator[str]:
    """One line per run, worst first, and one per finding that fires or that the verdict still counts.

    Texts from the daemon are in the daemon's language.
    """
    say_so = partial(say, language)
    colon, comma = say_so(": "), say_so(", ")
    if not runs:
        yield say_so("no runs found yet")
    for run in sorted(runs, key=_urgency):
        words = "step {step} of {max}" if run["max_steps"] else "step {step}"
        step = say_so(words, step=run["step"], max=run["max_steps"])
        state = comma.join([run["headline"], say_so("running" if run["active"] else "ended"), step])
        yield f"{run['run']}{colon}{state} · {run['coverage']['text']}"
        for found in run["firing"]:
            words, severity = "{severity}: {rule} since step {step}", say_so(found["severity"])
            since = say_so(words, severity=severity, rule=found["rule"], step=found["first_step"])
            yield f"  {since}{colon}{found['summary']}"
        for found in run["resolved"]:
            over = f"{say_so(found['severity'])}{comma}{say_so('over')}"
            yield f"  {over}{colon}{found['rule']} {found['since']}{colon}{found['summary']}"
        for sign in run["early_signs"]:
            yield f"  {say_so('early sign')}{colon}{sign['rule']}{colon}{sign['text']}"
        yield from (f"  {caveat}" for caveat in run["caveats"])
        yield from _unable(run["rules"], language, verbose=verbose)


def _urgency(run: Mapping[str, Any]) -> tuple[int, bool, str]:
    verdict = RunVerdict(run["verdict"])
    return WORST_FIRST.index(verdict), not run["active"], run["run"]


def _unable(rules: Sequence[Mapping[str, Any]], language: str, *, verbose: bool) -> Iterator[str]:
    """Broken rules; with ``verbose`` also the blind ones, by kind and reason."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        if rule["status"] == "broken" or (verbose and rule["status"] == "blind"):
            by_reason.setdefault((rule["blindness"] or rule["status"], rule["text"]), []).append(rule["rule"])
    for (kind, reason), names in by_reason.items():
        why = say(language, "{what} ({cost})", what=", ".join(names), cost=reason)
        yield f"  {say(language, LABELS.get(kind, kind))}{say(language, ': ')}{why}"
