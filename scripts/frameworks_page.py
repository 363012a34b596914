"""Fills the generated parts of docs/frameworks.md and docs/frameworks/*.md from the frameworks' data files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.detector import Detector
from grpo_watch.frameworks.framework import Framework
from grpo_watch.frameworks.framework_tables import frameworks, produced_by

FOLDER = Path(__file__).resolve().parent.parent / "grpo_watch" / "frameworks"
FOLDERS = {"grpo-watch": "grpo_watch_callback"}
"""Folders that aren't called as their framework."""
ELSEWHERE = frozenset({"completions", "checkpoints", "probe", "run end"})
"""Evidence that has channels of its own: whether a rule has it does not depend on the channel of the metrics."""
PART = re.compile(r"(<!-- (channels|keys|overview):([\w-]+) by make docs -->\n).*?(<!-- end -->)", re.DOTALL)
"""A generated part of a page: what of which framework; the overview is of `all`."""
OWN_PAGE = {"trl-async": "trl", "grpo-watch": "your-own"}
"""Frameworks described on a page of another name."""


def documents(docs: Path) -> Iterator[tuple[Path, str]]:
    """The overview and every framework's page, with the text they should have.

    Raises:
        ValueError: a framework has no page, or its page lacks a part.
    """
    pages = {path.stem: path.read_text("utf-8") for path in sorted((docs / "frameworks").glob("*.md"))}
    parts = {(found[2], found[3]) for text in pages.values() for found in PART.finditer(text)}
    for name in frameworks():
        for kind in ("channels", "keys"):
            if (kind, name) not in parts:
                raise ValueError(f"docs/frameworks/{page_of(name)}.md: the part {kind}:{name} is missing")
    overview = (docs / "frameworks.md").read_text("utf-8")
    yield docs / "frameworks.md", PART.sub(lambda found: f"{found[1]}{summary(pages)}{found[4]}", overview)
    for stem, text in pages.items():
        yield docs / "frameworks" / f"{stem}.md", PART.sub(part, text)


def part(found: re.Match[str]) -> str:
    """One generated part with its markers."""
    name = found[3]
    document = read(name)
    text = channels(name, document) if found[2] == "channels" else keys(name, document)
    return f"{found[1]}{text}{found[4]}"


def read(name: str) -> Mapping[str, Any]:
    """A framework's data file."""
    document: dict[str, Any] = yaml.safe_load(data_file(name).read_text("utf-8"))
    return document


def data_file(name: str) -> Path:
    """Where a framework's keys are: ``ms-swift`` has its own in ``ms_swift/keys.yaml``."""
    return FOLDER / FOLDERS.get(name, name.replace("-", "_")) / "keys.yaml"


def page_of(name: str) -> str:
    """The stem of the page that describes a framework."""
    return OWN_PAGE.get(name, name)


def summary(pages: Mapping[str, str]) -> str:
    """One line per framework: its best channels, and how many rules lack a metric there."""
    lines = []
    for name in sorted(set(frameworks()) - {"grpo-watch"}):
        document = read(name)
        rows = [(len(blind_rules(name, entry)), channel) for channel, entry in metric_channels(document)]
        title = pages[page_of(name)].partition("\n")[0].removeprefix("# ") if page_of(name) == name else name
        least = min((blind for blind, _ in rows), default=0)
        best = ", ".join(channel for blind, channel in rows if blind == least)
        others = ", ".join(f"{channel} ({blind})" for blind, channel in rows if blind > least) or "—"
        dumps = document["channels"].get("completions", {"none": True})
        seen = what_is_read("completions", dumps)
        lines.append((f"[{title}](frameworks/{page_of(name)}.md)", best, str(least), others, seen))
    head = ("framework", "best channels", "blind rules", "other channels (blind rules)", "completions")
    return f"{table(head, lines)}\n### Blind rules\n\n{by_lack()}"


def metric_channels(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The channels that give rows."""
    for channel, entry in document["channels"].items():
        if not entry.get("none") and channel not in ELSEWHERE:
            yield channel, entry


def channels(name: str, document: Mapping[str, Any]) -> str:
    """One row per channel, and the rules that are blind in all of them; channels with equal cells share a row."""
    blind = {channel: blind_rules(name, entry) for channel, entry in metric_channels(document)}
    everywhere = dict(set.intersection(*(set(rules.items()) for rules in blind.values())))
    alike: dict[tuple[str, str], list[str]] = {}
    for channel, entry in document["channels"].items():
        more = {rule: lack for rule, lack in blind.get(channel, {}).items() if rule not in everywhere}
        alike.setdefault((what_is_read(channel, entry), lacks(more)), []).append(channel)
    rows = [(", ".join(shown), scope, more) for (scope, more), shown in alike.items()]
    width = 3 if any(more for *_, more in rows) else 2
    head = ("channel", "keys read", "also not logged")[:width]
    shared = (
        f"\nNot logged in any channel ([which rules are blind](../frameworks.md#blind-rules)): {lacks(everywhere)}.\n"
        if everywhere
        else ""
    )
    return table(head, (row[:width] for row in rows)) + shared


def what_is_read(channel: str, entry: Mapping[str, Any]) -> str:
    """How many of the keys the channel has, and its note."""
    if entry.get("none"):
        return f"not read: {entry['note']}" if "note" in entry else "none"
    if channel in ELSEWHERE:
        return str(entry.get("note", "read"))
    scope = f"{len(entry['only'])} keys" if "only" in entry else "all keys"
    if "lacks" in entry:
        scope += " except " + ", ".join(f"`{key}`" for key in entry["lacks"])
    return f"{scope}; {entry['note']}" if "note" in entry else scope


def lacks(rules: Mapping[str, str]) -> str:
    """The metrics that these blind rules lack."""
    return "; ".join(sorted(set(rules.values())))


def by_lack() -> str:
    """Each lack that blinds a rule somewhere, with the rules: a new rule changes this table and no framework's page."""
    grouped: dict[str, set[str]] = {}
    for name in sorted(set(frameworks()) - {"grpo-watch"}):
        for _, entry in metric_channels(read(name)):
            for rule, lack in blind_rules(name, entry).items():
                grouped.setdefault(lack, set()).add(rule)
    lines = (
        (lack, ", ".join(f"[`{rule}`](rules.md#{rule})" for rule in sorted(grouped[lack]))) for lack in sorted(grouped)
    )
    return table(("not logged", "blind rules"), lines)


def blind_rules(name: str, entry: Mapping[str, Any]) -> dict[str, str]:
    """Each rule that is blind in this channel, with the metric it lacks."""
    given = metrics_of(frameworks()[name], entry)
    return {rule: lack for rule, detector in sorted(catalogue().items()) if (lack := lacking(detector, given))}


def metrics_of(framework: Framework, entry: Mapping[str, Any]) -> frozenset[str]:
    """The canonical metrics that this channel can give."""
    if "only" in entry:
        return frozenset(metric for key in entry["only"] if (metric := metric_of(framework, key)) is not None)
    lost = {metric_of(framework, key) for key in entry.get("lacks", ())}
    lost |= framework.printed.difference(entry.get("gives", ()))
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


def keys(name: str, document: Mapping[str, Any]) -> str:  # noqa: ARG001  the same form as ``channels``
    """What one framework's keys mean, and what to know about them."""
    facts = "".join(f"- {fact}\n" for fact in traps(document))
    based = document.get("based_on")
    metrics = by_metric(document.get("metrics") or {})
    more = f"All keys of [{based}]({page_of(based)}.md#keys){', and:' if metrics else '.'}\n" if based else ""
    listed = table(("metric", "keys"), ((f"`{metric}`", ", ".join(own)) for metric, own in metrics.items()))
    if all(own[0].partition("[")[0].strip("`") == metric for metric, own in metrics.items()):
        listed = ", ".join(own[0] for own in metrics.values()) + "\n"  # keys that are the metrics' own names
    return "\n".join(text for text in (facts, more, listed if metrics else "") if text)


def by_metric(metrics: Mapping[str, Any]) -> dict[str, list[str]]:
    """The keys of each metric, in the order of the data file, with when they count."""
    grouped: dict[str, list[str]] = {}
    for key, value in metrics.items():
        only = condition(value)
        grouped.setdefault(meaning(value), []).append(f"`{key}`{f' ({only})' if only else ''}")
    return grouped


def traps(document: Mapping[str, Any]) -> Iterator[str]:
    """What the keys alone do not show."""
    if document.get("kl_implies_beta") is False:
        yield "A reference KL of 0 may mean that none is computed. If beta can't be read, pass `--set beta=…`."
    if document.get("learning_rate") == "next":
        yield "A row shows the *next* step's learning rate."
    if not document.get("spread_key", "based") and "reward_group_std" not in map(meaning, document["metrics"].values()):
        yield "The reward spread inside groups is not logged. Flat groups are detected by other keys, if at all."


def meaning(value: str | Mapping[str, Any]) -> str:
    """The metric that a key stands for."""
    return value if isinstance(value, str) else str(value["metric"])


def condition(value: str | Mapping[str, Any]) -> str:
    """When the key counts, or how its value is converted."""
    if isinstance(value, str):
        return ""
    wording = {
        "beside": "only if `{}` is logged",
        "unless": "not if `{}` is logged",
        "not_with": "not with the setting `{}`",
        "zero": "an exact 0 is ignored",
        "tied": "where `{}` is logged, only if many are as long as the longest",
        "convert": "{}",
    }
    return ", ".join(wording[key].format(text) for key, text in value.items() if key in wording)


def table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table; ends with a newline."""
    whole = [head, ("---",) * len(head), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in whole)
