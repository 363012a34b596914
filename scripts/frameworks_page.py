"""Writes docs/frameworks.md: what is known per framework and channel, and which rules are blind there and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from grpo_watch.core.detector import Detector, catalogue
from grpo_watch.normalise.tables import Framework, frameworks, produced_by

FOLDER = Path(__file__).resolve().parent.parent / "grpo_watch" / "normalise" / "frameworks"
ELSEWHERE = frozenset({"completions", "checkpoints", "run end"})
"""Evidence that has channels of its own: whether a rule has it does not depend on the channel of the metrics."""
HEAD = """# Frameworks and channels

What is read of each framework's log, by channel, and which rules are blind there because no key gives what they need.
Rules that need completions, checkpoints or the end of the run depend on those being there, not on the channel of the
metrics, and are not listed. `grpo-watch sources PATH` says the same of a run at hand.

{script}
"""


def page(by_script: str) -> str:
    """The whole document."""
    documents = {name: yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8")) for name in sorted(frameworks())}
    lines = [HEAD.format(script=by_script.strip())]
    lines.append(table(("framework", "channel", "what is read", "blind rules, and what they lack"), rows(documents)))
    for name, document in documents.items():
        lines.append(section(name, document))
    return "\n".join(lines)


def rows(documents: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """One row per framework and channel; channels of which the same is known share a row."""
    for name, document in documents.items():
        shown = f"[{name}](#{name})"
        alike: dict[tuple[str, str], list[str]] = {}
        for channel, entry in document["channels"].items():
            alike.setdefault((what_is_read(channel, entry), blind(name, channel, entry)), []).append(channel)
        for (read, lacks), channels in alike.items():
            yield shown, ", ".join(channels), read, lacks
            shown = ""


def what_is_read(channel: str, entry: Mapping[str, Any]) -> str:
    """Nothing, some keys, or all of them, and what is special."""
    if entry.get("none") or channel in ELSEWHERE:
        return str(entry.get("note", "read"))
    scope = f"{len(entry['only'])} keys" if "only" in entry else "all keys"
    if "lacks" in entry:
        scope += " but " + ", ".join(f"`{key}`" for key in entry["lacks"])
    return f"{scope}; {entry['note']}" if "note" in entry else scope


def blind(name: str, channel: str, entry: Mapping[str, Any]) -> str:
    """The rules that can't see in this channel, by what they lack."""
    if entry.get("none") or channel in ELSEWHERE:
        return "—"
    given = metrics_of(frameworks()[name], entry)
    by_lack: dict[str, list[str]] = {}
    for rule, detector in sorted(catalogue().items()):
        lack = lacking(detector, given)
        if lack:
            by_lack.setdefault(lack, []).append(f"`{rule}`")
    return "; ".join(f"{', '.join(rules)} ({lack})" for lack, rules in by_lack.items()) or "none"


def metrics_of(framework: Framework, entry: Mapping[str, Any]) -> frozenset[str]:
    """The canonical metrics that this channel can give."""
    if "only" in entry:
        return frozenset(metric for key in entry["only"] if (metric := metric_of(framework, key)) is not None)
    lost = {metric_of(framework, key) for key in entry.get("lacks", ())}
    return frozenset((produced_by(framework.name) or frozenset()) - lost)


def metric_of(framework: Framework, key: str) -> str | None:
    """The canonical metric that a raw key means.

    Raises:
        ValueError: the data file names a key under ``channels`` that it does not know.
    """
    found = framework.find(key)
    if found is None:
        raise ValueError(f"{framework.name}.yaml: channels: {key} is no key of the file")
    return found[1].metric


def lacking(detector: type[Detector], given: frozenset[str]) -> str:
    """What the alternative that lacks least lacks; empty where one lacks nothing."""
    lacks = [[need for need in needs if need not in given and need not in ELSEWHERE] for needs in detector.needs]
    return " and ".join(f"`{need}`" for need in min(lacks, key=len)) if lacks and all(lacks) else ""


def section(name: str, document: Mapping[str, Any]) -> str:
    """What one framework's keys mean, and what to know of them."""
    based = f"All keys of [{document['based_on']}](#{document['based_on']}), and:\n\n" if "based_on" in document else ""
    facts = "".join(f"- {fact}\n" for fact in traps(document))
    keys = ((f"`{key}`", f"`{meaning(value)}`", condition(value)) for key, value in document.get("metrics", {}).items())
    return f"## {name}\n\n{facts}{chr(10) if facts else ''}{based}{table(('logged as', 'metric', ''), keys)}"


def traps(document: Mapping[str, Any]) -> Iterator[str]:
    """What the numbers do not say themselves."""
    if document.get("kl_implies_beta") is False:
        yield (
            "A KL to the reference of exactly 0 may mean that none is computed: `kl-stuck-at-zero` asks for the"
            " coefficient (`--set beta=…`) unless the configuration was read."
        )
    if document.get("learning_rate") == "next":
        yield "The learning rate is logged after the scheduler stepped: a row shows the rate of the next step."
    if not document.get("spread_key", "based"):
        yield "No spread of rewards inside groups is logged; groups without any are told by other keys, or not at all."


def meaning(value: str | Mapping[str, Any]) -> str:
    """The metric that a key stands for."""
    return value if isinstance(value, str) else str(value["metric"])


def condition(value: str | Mapping[str, Any]) -> str:
    """When it does not stand for it, or what is done to the value."""
    if isinstance(value, str):
        return ""
    said = {
        "beside": "only beside `{}`",
        "unless": "not beside `{}`",
        "not_with": "not with the setting `{}`",
        "zero": "an exact 0 is not measured",
        "convert": "{}",
    }
    return ", ".join(said[key].format(text) for key, text in value.items() if key in said)


def table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table; ends with a newline."""
    whole = [head, ("---",) * len(head), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in whole)
