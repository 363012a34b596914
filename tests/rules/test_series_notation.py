"""promtool's series notation becomes samples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.errors import FilePlace, RuleError
from grpo_watch.rules.example_blocks import MAX_SAMPLES, MISSING, parse_series


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("", ()),
        ("0.5", (0.5,)),
        ("0x3", (0.0, 0.0, 0.0, 0.0)),
        ("1+2x3", (1.0, 3.0, 5.0, 7.0)),
        ("1-0.5x2", (1.0, 0.5, 0.0)),
        ("-1+1x1", (-1.0, 0.0)),
        ("_", (MISSING,)),
        ("_x3", (MISSING, MISSING, MISSING)),
        ("_x0", ()),
        ("null", (None,)),
        ("nullx1", (None, None)),
        ("inf -inf", (math.inf, -math.inf)),
        ("1e-6x1", (1e-6, 1e-6)),
        ("1e-6+1e-6x1", (1e-6, 2e-6)),
        (".5 5.", (0.5, 5.0)),
        ("  1 \n 2\t3 ", (1.0, 2.0, 3.0)),
    ],
)
def test_terms(text: str, samples: tuple[object, ...]) -> None:
    """Each term gives the samples that promtool would."""
    assert parse_series(text) == samples


def test_architecture_example() -> None:
    """`0x3 0.02+0.01x6 _x3 nan`: 4 zeros, 7 rising, 3 missing, one NaN."""
    samples = parse_series("0x3 0.02+0.01x6 _x3 nan")
    assert samples[:4] == (0.0,) * 4
    assert samples[4:11] == pytest.approx([0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08])
    assert samples[11:14] == (MISSING,) * 3
    assert isinstance(samples[14], float)
    assert math.isnan(samples[14])
    assert len(samples) == 15


@pytest.mark.parametrize(
    "text", ["x3", "1x", "1+x3", "1+2", "_+1x3", "null-1x3", "0x1g", "1,2", "one", "1x-3", "--1", "1x9999999"]
)
def test_what_is_not_a_term_is_refused_by_name(text: str) -> None:
    """The error names the term and the place."""
    with pytest.raises(RuleError, match=r"^a\.yaml:3:7: ") as refused:
        parse_series(f"0 {text}", FilePlace("a.yaml", 3, 7))
    assert repr(text) in str(refused.value)


def test_length_is_limited() -> None:
    """A short text can't ask for gigabytes."""
    assert len(parse_series(f"0x{MAX_SAMPLES - 1}")) == MAX_SAMPLES
    with pytest.raises(RuleError, match="at most 100000 samples"):
        parse_series(f"0x{MAX_SAMPLES}")
    with pytest.raises(RuleError, match="at most 100000 samples"):
        parse_series("0x60000 0x60000")


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_plain_numbers_come_back_exactly(numbers: list[float]) -> None:
    """Printing numbers and reading the series gives the same numbers."""
    assert parse_series(" ".join(repr(number) for number in numbers)) == tuple(numbers)
