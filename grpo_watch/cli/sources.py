"""``grpo-watch sources``: lists the runs of a path, the records of each channel, and the blind rules."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from grpo_watch.catalogue import catalogue
from grpo_watch.cli.check import open_runs
from grpo_watch.cli.terminal import print_json, printed
from grpo_watch.cli.tracker_servers import local_paths
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings, parse_assignments
from grpo_watch.engine.judgement import guessed_lines
from grpo_watch.engine.records import Scalar, Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import RuleStatus, RunSnapshot
from grpo_watch.errors import SourceError
from grpo_watch.mounts import network_type
from grpo_watch.pipeline.offline import read_run
from grpo_watch.report.blindness import unjudged
from grpo_watch.report.lines import Line
from grpo_watch.report.view import software
from grpo_watch.report.words import say, sentence_words
from grpo_watch.rules.packs import rules_for
from grpo_watch.safe_text import strict, visible
from grpo_watch.sources.base import SourceStats
from grpo_watch.sources.discovery.discover import ChannelContent, FoundChannel, FoundRun
from grpo_watch.sources.discovery.unread import nothing_there, unread_row

SCHEMA = "grpo-watch/sources/1"

FOUND, NOTHING_FOUND = 0, 3


@dataclass(frozen=True, slots=True)
class ExaminedRun:
    """A found run after one pass over its files. ``stats`` has an entry for every opened channel.

    ``notes`` are warnings: contradictory channels, a network file system, rows in an unknown notation.
    """

    found: FoundRun
    snapshot: RunSnapshot
    stats: Mapping[str, SourceStats]
    unknown_keys: tuple[str, ...]
    notes: tuple[str, ...] = ()


def sources_command(given: Namespace) -> int:
    """Print the runs and channels under ``given.paths``; returns 0 if a run was found, 3 if not.

    Raises:
        UsageError: a path does not exist, or an option, the settings file or a rule file can't be used.
    """
    chosen, overrides = load_settings(config=given.config).settings, parse_assignments(given.settings)
    rules = rules_for(chosen)
    with open_runs(given.paths, chosen) as (found, problems):
        examined = [examine(run, chosen, overrides, rules) for run in found]
    if given.format == "json":
        print_json(document(examined, problems))
    else:
        text = _as_text(examined, problems, given.paths, chosen.language, color=given.color)
        sys.stdout.write(text)
    return FOUND if examined else NOTHING_FOUND


def examine(found: FoundRun, chosen: Settings, overrides: Mapping[str, Scalar], rules: Sequence[Rule]) -> ExaminedRun:
    """Read a run once as ``check`` does, with the same settings, and count the records of each channel."""
    read = read_run(found, rules, catalogue(), Tick(time.time(), live=False), chosen, overrides)
    assembler = read.pipeline.assembler
    notes = (
        assembler.agreement.summary(),
        assembler.overlap.problem,
        _network(found),
        *_unread(found, assembler.given),
        *read.unused_columns,
    )
    stats = {source.name: source.stats for source in read.sources}
    shown = tuple(filter(None, notes))
    return ExaminedRun(found, read.pipeline.snapshot(), stats, assembler.resolver.unknown_keys, shown)


def _network(found: FoundRun) -> str:
    kind = network_type(found.root)
    return (
        f"on a network file system ({kind}): files are polled, because file events from other machines don't arrive"
        if kind
        else ""
    )


def _unread(found: FoundRun, given: Mapping[str, int]) -> Iterator[str]:
    """Logs whose rows can't be parsed."""
    for channel in found.channels:
        if channel.what is ChannelContent.CONSOLE and not given.get(channel.name):
            with suppress(OSError, SourceError):
                yield f"{channel.name}: {why}" if (why := unread_row(channel.path, found.roots)) else ""


def document(examined: Sequence[ExaminedRun], problems: Sequence[str]) -> dict[str, Any]:
    """The JSON document (schema ``grpo-watch/sources/1``)."""
    return {"schema": SCHEMA, "runs": [_run(one) for one in examined], "problems": list(problems)}


def _run(one: ExaminedRun) -> dict[str, Any]:
    snapshot = one.snapshot
    return {
        "run": one.found.name,
        "root": one.found.remote or str(one.found.root),
        "framework": snapshot.framework,
        "framework_version": snapshot.version,
        "steps": snapshot.step,
        "channels": [_channel(channel, one.stats.get(channel.name)) for channel in one.found.channels],
        "settings": {
            name: {"value": strict(setting.value), "origin": setting.origin}
            for name, setting in sorted(snapshot.config.items())
        },
        "unknown_keys": list(one.unknown_keys),
        "guessed": dict(snapshot.judgement.guessed),
        "rules": [
            {"rule": rule.rule, "status": rule.status.value, "reason": rule.reason or None} for rule in snapshot.rules
        ],
        "problems": [*one.found.problems, *one.notes],
    }


def _channel(channel: FoundChannel, stats: SourceStats | None) -> dict[str, Any]:
    return {
        "name": channel.name,
        "kind": channel.what.value,
        "path": str(channel.path),
        "segment": channel.segment,
        "shows_end": channel.shows_end,
        "read": stats is not None,
        "gives": channel.what.gives,
        "records": stats.records if stats else 0,
        "skipped": {reason.value: count for reason, count in stats.skipped.items()} if stats else {},
        "first_bad": (stats.first_bad or None) if stats else None,
        "problem": (stats.problem or None) if stats else None,
    }


def _as_text(
    examined: Sequence[ExaminedRun], problems: Sequence[str], paths: Sequence[str], language: str, *, color: bool
) -> str:
    lines = [line for one in examined for line in (*_lines(one), Line())]
    lines += (Line(visible(sentence_words(language, problem, "errors")), "yellow") for problem in problems)
    if not examined:
        lines.append(Line(say(language, "no run found in {paths}", paths=visible(", ".join(paths)))))
        reasons = (f"{path}: {nothing_there(Path(path))}" for path in local_paths(paths) if not problems)
        lines += (Line(visible(sentence_words(language, reason, "errors"))) for reason in reasons)
    return printed(lines, color=color)


def _lines(one: ExaminedRun) -> Iterator[Line]:
    snapshot, found, say_so = one.snapshot, one.found, partial(say, one.snapshot.language)
    said, colon = partial(sentence_words, snapshot.language, part="errors"), say_so(": ")
    name = " ".join(part for part in (snapshot.framework, snapshot.version) if part)
    place = visible(found.remote or str(found.root))
    yield Line(f"{visible(found.name)}  {say_so(software(name))}  {place}", "bold")
    for channel in found.channels:
        stats = one.stats.get(channel.name)
        if _worth_showing(channel, stats):
            yield Line(visible(_place(channel)), _style(stats), indent=2)
            yield Line(f"{channel.what.value}{colon}{_gave(channel, stats, snapshot.language)}", "dim", indent=6)
    for line in guessed_lines(snapshot.judgement.guessed):
        yield Line(visible(said(line)), "yellow", indent=2)
    unknown = [key for key in one.unknown_keys if key not in snapshot.judgement.guessed]
    if unknown:
        keys = ", ".join(visible(key) for key in unknown[:12])
        yield Line(say_so("unknown metrics, kept as raw:<key>: {keys}", keys=keys), indent=2)
    for note in one.notes:
        yield Line(visible(said(note)), indent=2)
    for problem in found.problems:
        yield Line(visible(said(problem)), "yellow", indent=2)
    live = sum(rule.status in (RuleStatus.OK, RuleStatus.FIRING) for rule in snapshot.rules)
    yield Line(say_so("{n} of {all} rules can judge this run", n=live, all=len(snapshot.rules)), indent=2)
    for label, reason, rules in unjudged(snapshot):
        yield Line(
            f"{label}{colon}{say_so('{what} ({cost})', what=', '.join(rules), cost=visible(reason))}", "dim", indent=2
        )
    for rule in snapshot.rules:
        if rule.status is RuleStatus.BROKEN:
            why = say_so("{what} ({cost})", what=rule.rule, cost=visible(rule.reason))
            yield Line(f"{say_so('broken')}{colon}{why}", "red", indent=2)


def _place(channel: FoundChannel) -> str:
    """The channel's file, or the folder for the settings channel."""
    settings = channel.what is ChannelContent.RUN_CONFIG
    return channel.name.removesuffix("run-config") or "./" if settings else channel.name


def _worth_showing(channel: FoundChannel, stats: SourceStats | None) -> bool:
    """Whether to list the channel: settings folders without configuration files are not listed."""
    silent = stats is not None and not (stats.records or stats.problem or stats.skipped)
    return not (channel.what is ChannelContent.RUN_CONFIG and silent)


def _gave(channel: FoundChannel, stats: SourceStats | None, language: str) -> str:
    say_so, said = partial(say, language), partial(sentence_words, language, part="errors")
    parts = [say_so(channel.what.gives)]
    if stats is not None:
        words = "1 record" if stats.records == 1 else "{n} records"
        parts.append(say_so(words, n=stats.records))
        if stats.skipped:
            first = say_so(" (first: {what})", what=visible(said(stats.first_bad))) if stats.first_bad else ""
            parts.append(say_so("{n} skipped", n=sum(stats.skipped.values())) + first)
        if stats.problem:
            parts.append(visible(said(stats.problem)))
    if channel.segment:
        parts.append(say_so("part {n}", n=channel.segment + 1))
    if channel.shows_end:
        parts.append(say_so("shows the end of the run"))
    return say_so(", ").join(parts)


def _style(stats: SourceStats | None) -> str:
    return "yellow" if stats is not None and stats.problem else ""
