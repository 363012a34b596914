"""Turns the answer of ``grpo-watch digest`` into text for people."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

from grpo_watch.engine.records import TensorDigest
from grpo_watch.safe_text import visible

SHOWN = 40
"""Names listed per kind of change, and problems."""


def as_text(answer: dict[str, Any], tensors: Mapping[str, TensorDigest], *, color: bool) -> str:
    """The digest of one checkpoint (``tensors``), or what differs between two."""
    from rich.console import Console  # noqa: PLC0415  rich is not needed for JSON

    file = StringIO()
    console = Console(file=file, force_terminal=color, no_color=not color, width=10_000, highlight=False)
    if "checksums" in answer:
        for name, one in sorted(tensors.items()):
            shape = "×".join(map(str, one.shape)) or "scalar"
            zero = "  all zero" if one.zero else ""
            file.write(f"{one.checksum}  {one.dtype} {shape}  {visible(name)}{zero}\n")  # rich takes 0.5 ms a line
        console.print(f"{answer['tensors']} tensors", markup=False)
        if "base" in answer:
            console.print(_beside_base(answer["base"]), markup=False)
    else:
        _compare(answer, console)
    apart = answer.get("ranks_apart", [])
    _capped(console, "red", [f"apart    {name}: ranks that must agree hold different bytes" for name in apart])
    _capped(console, "yellow", [f"note: {remark}" for remark in answer.get("remarks", [])])
    _capped(console, "red", [f"problem: {problem['file']}: {problem['message']}" for problem in answer["problems"]])
    return file.getvalue()


def _capped(console: Any, style: str, lines: list[str]) -> None:
    """The first of many lines; a model saved ungathered has a problem per tensor."""
    for line in lines[:SHOWN]:
        console.print(visible(line), style=style, markup=False)
    if len(lines) > SHOWN:
        console.print(f"… and {len(lines) - SHOWN} more (--format json lists all)", style=style, markup=False)


def _beside_base(base: Mapping[str, Any]) -> str:
    where = f"base model {visible(base['path'])}"
    if not base["changed"]:
        return f"{where}: all {base['tensors']} tensors are byte-identical: still the base model"
    return f"{where}: {base['changed']} of {base['tensors']} tensors changed"


def _compare(answer: dict[str, Any], console: Any) -> None:
    for kind, style in (("changed", "green"), ("added", "cyan"), ("removed", "yellow")):
        for name in answer[kind][:SHOWN]:
            console.print(f"{kind:8} {visible(name)}", style=style, markup=False)
        if len(answer[kind]) > SHOWN:
            console.print(f"{kind:8} … and {len(answer[kind]) - SHOWN} more (--format json lists all)", style=style)
    names = {"moments": "the optimizer's moments", "masters": "the optimizer's float32 copies of the weights"}
    for kind, state in answer.get("optimizer", {}).items():
        console.print(f"{names[kind]}: {state}", markup=False)
    changed, unchanged, whole = len(answer["changed"]), answer["unchanged"], answer.get("whole_files", 0)
    what = "files" if whole and whole == changed + unchanged else "tensors"
    verdict = f"{changed} of {changed + unchanged} {what} changed"
    if not changed and unchanged and not answer["problems"]:
        verdict = f"all {unchanged} {what} are byte-identical"
    elif what == "files":
        verdict += " (compared as whole files: proves nothing about the weights)"
    verdict += f"; {len(answer['added'])} added, {len(answer['removed'])} removed"
    console.print(verdict, style="bold", markup=False)
