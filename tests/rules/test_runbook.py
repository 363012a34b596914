"""Reading a runbook and writing its parameter table."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from grpo_watch.engine.detector import Detector, Param
from grpo_watch.errors import RuleError
from grpo_watch.rules.runbook import Runbook, bounds, parameter_table, runbook_of
from tests.support.runbooks import examples_of, headings

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
    """Headings inside code are no headings; examples know their line."""
    runbook = Runbook(Path("some_rule.md"), TEXT)
    assert runbook.summary == "What it says, in one sentence."
    assert headings(runbook) == ("What it detects", "Parameters", "Examples")
    assert [(each.place.line, each.expect.quiet, each.expect.fires) for each in examples_of(runbook)] == [
        (20, True, None),
        (26, None, 1),
    ]


def test_the_table_of_parameters() -> None:
    table = parameter_table(MappingProxyType({"k": Param(1e-7, "how much", minimum=0), "on": Param(True, "whether")}))
    assert table == (
        "| parameter | default | allowed | meaning |\n"
        "|---|---|---|---|\n"
        "| `k` | 1e-07 | ≥ 0 | how much |\n"
        "| `on` | true | true, false | whether |\n"
    )
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


def test_a_missing_runbook_is_named() -> None:
    """The error names the file."""
    with pytest.raises(RuleError, match=r"detector\.md: the runbook can't be read: No such file"):
        runbook_of(Detector)
