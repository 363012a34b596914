"""Reading a runbook and writing its parameter table."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from grpo_watch.engine.detector import Detector, Param
from grpo_watch.errors import RuleError
from grpo_watch.rules.runbook import Runbook, bounds, parameter_table, runbook_of

TEXT = """\
# some-rule
What it says,
in one sentence.

## What it detects

```yaml
## not a heading
```

## Parameters

<!-- parameters:begin -->
old
<!-- parameters:end -->

## Examples

```series
expect: {quiet: true}
```

text

```series
expect: {fires: 1}
```
"""


def test_parts_of_a_runbook() -> None:
    """Headings inside code are no headings; blocks know their line."""
    runbook = Runbook(Path("some_rule.md"), TEXT)
    assert (runbook.title, runbook.summary) == ("some-rule", "What it says, in one sentence.")
    assert runbook.headings == ("What it detects", "Parameters", "Examples")
    assert list(runbook.blocks()) == [(20, "expect: {quiet: true}\n"), (26, "expect: {fires: 1}\n")]


def test_the_table_replaces_what_is_between_the_markers() -> None:
    """Nothing else changes, and a second time nothing does."""
    table = parameter_table(MappingProxyType({"k": Param(1e-7, "how much", minimum=0), "on": Param(True, "whether")}))
    assert table == (
        "| parameter | default | allowed | meaning |\n"
        "|---|---|---|---|\n"
        "| `k` | 1e-07 | ≥ 0 | how much |\n"
        "| `on` | true | true, false | whether |\n"
    )
    changed = Runbook(Path("some_rule.md"), TEXT).with_table(table)
    assert changed == TEXT.replace("old\n", table)
    assert Runbook(Path("some_rule.md"), changed).with_table(table) == changed
    assert parameter_table({}) == "None.\n"


@pytest.mark.parametrize(
    ("param", "words"),
    [
        (Param(1, "", 0, 2), "0 … 2"),
        (Param(1, "", maximum=2.5), "≤ 2.5"),
        (Param(1.0, ""), "any number"),
        (Param("a", ""), "text"),
    ],
)
def test_bounds_in_words(param: Param, words: str) -> None:
    """As people read them."""
    assert bounds(param) == words


def test_missing_markers_and_missing_runbook_are_named() -> None:
    """The error names the file."""
    with pytest.raises(RuleError, match=r"^x\.md: the markers"):
        Runbook(Path("x.md"), "# x\n").with_table("")
    with pytest.raises(RuleError, match=r"detector\.md: the runbook can't be read: No such file"):
        runbook_of(Detector)
