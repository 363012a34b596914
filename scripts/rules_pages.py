"""Writes docs/rules.md (each rule, how it ships, what it needs, its runbook) and the list of rules in the changelog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill

from frameworks_page import table

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.rule import Rule
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.runbook import page_of

FAMILIES = ("policy", "rollouts", "reward", "stability", "run", "watcher")
"""The shipped packs, in the order in which the index shows them."""
COLUMNS = ("rule", "severity", "fires after", "needs", "finding")
INDEX_HEAD = """# Rules

Each rule links to its runbook: what it detects, what to do, when it is wrong, how it is computed.
`grpo-watch explain RULE` prints the same with the settings in force. To change or write rules, see
[writing rules](writing-rules.md).

| severity | meaning |
| --- | --- |
| `critical` | the run is wasting compute; page someone |
| `warning` | look at it today |
| `info` | explains other findings; no action needed |

Each run has one top finding. Findings that it explains are listed below it as warnings or lower, and send no
notifications of their own.

**Fires after** counts breaching rows and the optimizer steps from the first to the last of them; *1 row* means at once.
**Needs** names the [metrics](metrics.md) (without `grpo_`) and channels that the rule is blind without.

Each rule has an anchor, so that notifications can link here: host this folder and set
`runbook_url: https://…/docs/rules.md#{rule}` in `grpo-watch.yaml`.
"""


def documents(root: Path) -> Iterator[tuple[Path, str]]:
    """The index, with the text it should have."""
    yield root / "docs" / "rules.md", index(root, {rule.name: rule for rule in load_rules()})


def index(root: Path, rules: Mapping[str, Rule]) -> str:
    """A table per family, in the order of its pack."""
    parts = [INDEX_HEAD]
    for title, about, own in by_family(root, rules):
        rows = (row(root, rule, catalogue()[rule.name]) for rule in own)
        parts.append(f"## {title}\n\n{about[0].upper()}{about[1:]}\n\n{table(COLUMNS, rows)}")
    return "\n".join(parts)


def names(root: Path, rules: Mapping[str, Rule]) -> str:
    """The rules of each family as an item of the changelog."""
    items = (f"- {title}: {', '.join(f'`{rule.name}`' for rule in own)}." for title, _, own in by_family(root, rules))
    return "".join(f"{fill(item, 130, subsequent_indent='  ', break_on_hyphens=False)}\n" for item in items)


def by_family(root: Path, rules: Mapping[str, Rule]) -> Iterator[tuple[str, str, Sequence[Rule]]]:
    """Title and description of each pack, and its rules in their order."""
    for family in FAMILIES:
        pack = root / "rules" / f"{family}.yaml"
        title, _, about = pack.read_text("utf-8").partition("\n")[0].removeprefix("# ").partition(": ")
        yield title, about, sorted((rule for rule in rules.values() if file_of(rule) == pack.name), key=line_of)


def row(root: Path, rule: Rule, detector: type[Detector]) -> tuple[str, ...]:
    """One rule's line."""
    runbook = page_of(detector).relative_to(root)
    name = f'<a id="{rule.name}"></a>[`{rule.name}`](../{runbook})'
    return name, rule.severity.value, fires(rule), needs(detector), rule.summary


def fires(rule: Rule) -> str:
    """How long the symptom must last."""
    rows = f"{rule.min_observations} row{'s' if rule.min_observations > 1 else ''}"
    return f"{rows}, {rule.for_steps} steps" if rule.for_steps else rows


def needs(detector: type[Detector]) -> str:
    """The alternatives of evidence."""
    return "; or ".join(" and ".join(f"`{need}`" for need in needs) for needs in detector.needs) or "-"


def file_of(rule: Rule) -> str:
    """The pack that defines the rule."""
    return Path(rule.where.rpartition(":")[0]).name


def line_of(rule: Rule) -> int:
    """Its line there."""
    return int(rule.where.rpartition(":")[2])
