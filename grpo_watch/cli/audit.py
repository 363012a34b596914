"""``grpo-watch audit`` and ``advisories``: the known bugs of a run or a launch, and the list of all known bugs."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from grpo_watch.advisories.entries import Advisory, advisories
from grpo_watch.cli.terminal import print_json, printed
from grpo_watch.config.document import nearest
from grpo_watch.config.settings import reader_language
from grpo_watch.engine.records import Severity
from grpo_watch.errors import UsageError
from grpo_watch.preflight.audit import Audit, audit, document
from grpo_watch.preflight.inputs.load_launch import GivenOptions
from grpo_watch.preflight.text_report import STYLES
from grpo_watch.report.lines import Line, padded
from grpo_watch.report.words import say
from grpo_watch.rules.packs import advisory_in
from grpo_watch.safe_text import visible

LIST_SCHEMA = "grpo-watch/advisories/1"
FINE, FOUND, NOT_JUDGED = 0, 1, 3


def audit_command(given: Namespace) -> int:
    """Print the advisories that apply; returns 1 if any is above ``info``, 3 if nothing could be judged.

    Raises:
        UsageError: no run or launch was given, or it can't be read.
    """
    if given.path is None and not given.launch:
        raise UsageError("pass a PATH, or the launch command after -- (grpo-watch audit -- swift rlhf ...)")
    options = GivenOptions(given.framework, given.framework_version, given.world_size, python=given.python)
    audits = audit(given.path, given.launch, options, Path.cwd(), os.environ)
    if given.format == "json":
        print_json(document(audits))
    else:
        place = f"-- {shlex.join(given.launch)}" if given.launch else shlex.quote(str(given.path))
        language = reader_language()
        lines = (line for each in audits for line in _audited(each, place, language))
        sys.stdout.write(printed(lines, color=given.color))
    harmful = any(match.advisory.severity is not Severity.INFO for each in audits for match in each.applying)
    return FOUND if harmful else FINE if any(each.judged for each in audits) else NOT_JUDGED


def _audited(one: Audit, place: str, language: str) -> Iterator[Line]:
    """The lines of one audit; ``place`` is the audited path or command, as on the command line."""
    say_so = partial(say, language)
    if not one.judged:
        line = Line().append(say_so("NOT JUDGED"), "bold")
        line.append(f"{say_so(': ')}{say_so('no version known')}")
        framework = one.setup.framework or "NAME"
        yield line.append(f"  {visible(one.name)}", "dim")
        yield Line(f"grpo-watch audit --framework {framework} --framework-version VERSION {visible(place)}", indent=2)
        yield from _open(one, say_so)
        return
    count = len(one.applying)
    words = "1 KNOWN BUG" if count == 1 else "{n} KNOWN BUGS"
    found = say_so(words, n=count) if count else say_so("NO KNOWN BUG")
    framework = one.setup.framework or say_so("unknown framework")
    yield Line(found, "bold").append(f"  {visible(one.name)}  {framework}", "dim")
    judged = [f"{package} {setting.value} ({setting.origin})" for package, setting in one.versions.items()]
    yield Line(f"{padded(say_so('versions'), 10)} {visible(', '.join(judged))}", "dim", indent=2)
    for match in one.applying:
        advisory = advisory_in(language, match.advisory)
        severity = advisory.severity.value
        line = Line(f"{padded(say_so(severity), 8)}  ", STYLES[severity], indent=2)
        line.append(advisory.id, "bold")
        yield line.append(f"  {advisory.package} {match.version}", "dim").append(f" {advisory.title}")
        given = say_so("by {settings}", settings=", ".join(match.given)) if match.given else ""
        for text in (advisory.wrong, given, f"→ {advisory.fix}"):
            if text:
                yield Line(visible(text.strip()), indent=12)
        yield Line(" ".join(advisory.threads), "dim", indent=12)
    yield from _open(one, say_so)


def _open(one: Audit, say_so: Callable[[str], str]) -> Iterator[Line]:
    """Advisories that may apply, grouped by the command or setting that would settle it."""
    by_command: dict[str, list[str]] = {}
    for match in one.open:
        by_command.setdefault(match.settle, []).append(match.advisory.id)
    for command, names in by_command.items():
        yield Line(f"{padded(say_so('not known'), 10)} {', '.join(names)}: {command}", "dim", indent=2)


def advisories_command(given: Namespace) -> int:
    """Print one advisory or a list of them; returns 0.

    Raises:
        UsageError: no advisory or package has the given name.
    """
    name, package = given.name, given.package
    chosen = [each for each in advisories() if name in {None, each.id} and package in {None, each.package}]
    if not chosen:
        known = {each.id for each in advisories()} if name is not None else {each.package for each in advisories()}
        raise UsageError(
            f"no advisory {name or f'of {package}'} ({nearest(name or package or '', known) or 'see list'})"
        )
    if given.format == "json":
        print_json({"schema": LIST_SCHEMA, "advisories": [msgspec.to_builtins(each) for each in chosen]})
    else:
        language = reader_language()
        said = [advisory_in(language, each) for each in chosen]
        brief = (Line(f"{each.id}  {each.package} {each.affected:14}  {each.title}") for each in said)
        sys.stdout.write(printed(whole(said[0], language) if name is not None else brief, color=given.color))
    return FINE


def whole(advisory: Advisory, language: str) -> Iterator[Line]:
    """Every field of an advisory, in the given language."""
    say_so = partial(say, language)
    yield Line(f"{advisory.id}  {advisory.package}: {advisory.title}", "bold")
    shows = ", ".join(advisory.shows) or say_so("nothing shows it")
    for label, text in (
        (say_so("severity"), say_so(advisory.severity.value)),
        (say_so("affected"), f"{advisory.package} {advisory.affected}"),
        (say_so("fixed"), advisory.fixed),
        (say_so("when"), advisory.when),
        (say_so("wrong"), advisory.wrong),
        (say_so("shows"), shows),
        (say_so("fix"), advisory.fix),
        (say_so("threads"), " ".join(advisory.threads)),
    ):
        yield Line(f"{padded(label, 9)} {text.strip()}", indent=2)
