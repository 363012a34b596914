"""``grpo-watch status``: asks the running daemon what it watches, what fires, and which rules are blind and why."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_watch.config.schema import split_listen
from grpo_watch.config.settings import load_settings

ANSWER_SECONDS = 5.0
NO_DAEMON = 3
SCHEMA = "grpo-watch/status/1"
EVERYWHERE: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  asked at, not bound


def status_command(config: Path | None, listen: str | None, output_format: str) -> int:
    """Print what the daemon at the configured address says; 3 where none answers.

    Raises:
        ConfigError: the settings can't be used.
    """
    host, port = split_listen(load_settings({"listen": listen}, config=config).settings.listen)
    host = EVERYWHERE.get(host, host)
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    try:
        told, alerts = _asked(address, "runs"), _asked(address, "alerts")["alerts"]
        runs, problems = told["runs"], told.get("problems", [])
    except (OSError, ValueError, KeyError) as problem:
        reason = getattr(problem, "reason", problem)
        sys.stderr.write(f"grpo-watch: no daemon answers at {address} ({reason}); --listen names another one\n")
        return NO_DAEMON
    if output_format == "json":
        document = {"schema": SCHEMA, "runs": runs, "alerts": alerts, "problems": problems}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(runs, alerts))
        sys.stdout.writelines(_unread(problems))
    return 0


def _unread(problems: Sequence[str]) -> Iterator[str]:
    """What concerns no run: files that can't be read, rules that don't load."""
    if problems:
        from grpo_watch.report.text import printable  # noqa: PLC0415  heavy, and seldom needed

        yield from (f"problem: {printable(problem)}\n" for problem in problems)


def _asked(address: str, what: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # our own daemon is behind no proxy
    with opener.open(f"{address}/api/v1/{what}", timeout=ANSWER_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _lines(runs: Sequence[Mapping[str, Any]], alerts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not runs:
        yield "no run was found yet"
    for run in runs:
        unseeing = [rule for rule in run["rules"] if rule["status"] in {"blind", "broken"}]
        live = len(run["rules"]) - len(unseeing)
        goal = f" of {run['max_steps']}" if run["max_steps"] else ""
        going_on = "running" if run["active"] else "not running"
        verdict = run["verdict"].replace("-", " ")
        yield f"{run['run']}: {verdict}, {going_on}, step {run['step']}{goal}, {live} rules live, {len(unseeing)} blind"
        yield from _firing(run, alerts)
        yield from _blind(unseeing)


def _firing(run: Mapping[str, Any], alerts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for alert in alerts:
        if alert["run"] == run["run"] and alert["status"] == "firing":
            explained = f" (explained by {alert['caused_by']})" if alert["caused_by"] else ""
            since = f"since step {alert['first_step']}"
            yield f"  {alert['severity']}: {alert['rule']} {since}: {alert['summary']}{explained}"


def _blind(unseeing: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for rule in unseeing:
        by_reason.setdefault(rule["reason"], []).append(rule["rule"])
    yield from (f"  blind: {', '.join(names)} ({reason})" for reason, names in by_reason.items())
