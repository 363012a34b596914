"""``grpo-watch audit`` and ``advisories``: known bugs that a run or a launch has, and the list of all."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from grpo_watch.advisories.entries import Advisory, advisories
from grpo_watch.cli.options import columns
from grpo_watch.config.document import nearest
from grpo_watch.engine.records import Severity
from grpo_watch.errors import UsageError
from grpo_watch.preflight.audit import Audit, audit, document
from grpo_watch.preflight.inputs.load_launch import GivenOptions
from grpo_watch.preflight.text_report import STYLES
from grpo_watch.safe_text import visible

LIST_SCHEMA = "grpo-watch/advisories/1"
FINE, FOUND, NOT_JUDGED = 0, 1, 3


def audit_command(
    path: Path | None, command: Sequence[str], options: GivenOptions, output_format: str, *, color: bool
) -> int:
    """Print the advisories that apply; returns 1 where one is more than ``info``, 3 where nothing could be judged.

    Raises:
        UsageError: nothing was given, or what was given can't be read.
    """
    if path is None and not command:
        raise UsageError("pass a PATH, or the launch command after -- (grpo-watch audit -- swift rlhf ...)")
    audits = audit(path, command, options, Path.cwd(), os.environ)
    if output_format == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document(audits)), indent=1).decode() + "\n")
    else:
        place = f"-- {shlex.join(command)}" if command else shlex.quote(str(path))
        _print([line for each in audits for line in _audited(each, place)], color=color)
    harmful = any(match.advisory.severity is not Severity.INFO for each in audits for match in each.applying)
    return FOUND if harmful else FINE if any(each.judged for each in audits) else NOT_JUDGED


def _print(lines: Sequence[Text], *, color: bool) -> None:
    console = Console(force_terminal=color, no_color=not color, width=columns(), highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line)


def _audited(one: Audit, place: str) -> Iterator[Text]:
    """The lines of one; ``place`` is what was to be audited, as on the command line."""
    if not one.judged:
        line = Text("NOT JUDGED", style="bold").append(": no framework or version known", style="not bold")
        yield line.append(f"  {visible(one.name)}", style="dim")
        yield Text(f"  grpo-watch audit --framework NAME --framework-version VERSION {visible(place)}")
        return
    count = len(one.applying)
    word = Text("NO KNOWN BUG" if not count else "1 KNOWN BUG" if count == 1 else f"{count} KNOWN BUGS", style="bold")
    yield word.append(f"  {visible(one.name)}  {one.setup.framework or 'unknown framework'}", style="dim")
    for match in one.applying:
        advisory = match.advisory
        line = Text(f"  {advisory.severity.value:8}  ", style=STYLES[advisory.severity.value])
        line.append(advisory.id, style="bold")
        yield line.append(f"  {advisory.package} {match.version}", style="dim").append(f" {advisory.title}")
        for text in (advisory.wrong, f"by {', '.join(match.given)}" if match.given else "", f"→ {advisory.fix}"):
            if text:
                yield Text(f"            {visible(text.strip())}")
        yield Text(f"            {' '.join(advisory.threads)}", style="dim")
    by_command: dict[str, list[str]] = {}
    for match in one.open:
        by_command.setdefault(match.settle, []).append(match.advisory.id)
    for command, names in by_command.items():
        yield Text(f"  not known  {', '.join(names)}: {command}", style="dim")


def advisories_command(name: str | None, package: str | None, output_format: str, *, color: bool) -> int:
    """Print one advisory or a list of them; returns 0.

    Raises:
        UsageError: there is no such advisory, or none of the package.
    """
    chosen = [each for each in advisories() if name in {None, each.id} and package in {None, each.package}]
    if not chosen:
        known = {each.id for each in advisories()} if name is not None else {each.package for each in advisories()}
        raise UsageError(
            f"no advisory {name or f'of {package}'} ({nearest(name or package or '', known) or 'see list'})"
        )
    if output_format == "json":
        listed = {"schema": LIST_SCHEMA, "advisories": [msgspec.to_builtins(each) for each in chosen]}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(listed), indent=1).decode() + "\n")
        return FINE
    lines = _whole(chosen[0]) if name is not None else map(_brief, chosen)
    _print(list(lines), color=color)
    return FINE


def _brief(advisory: Advisory) -> Text:
    return Text(f"{advisory.id}  {advisory.package} {advisory.affected:14}  {advisory.title}")


def _whole(advisory: Advisory) -> Iterator[Text]:
    yield Text(f"{advisory.id}  {advisory.package}: {advisory.title}", style="bold")
    shows = ", ".join(advisory.shows) or "nothing shows it"
    for label, text in (
        ("severity", advisory.severity.value),
        ("affected", f"{advisory.package} {advisory.affected}"),
        ("fixed", advisory.fixed),
        ("when", advisory.when),
        ("wrong", advisory.wrong),
        ("shows", shows),
        ("fix", advisory.fix),
        ("threads", " ".join(advisory.threads)),
    ):
        yield Text(f"  {label:9} {text.strip()}")
