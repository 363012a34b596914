"""What a text looks like."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.sources.completions.summarise import summarise_groups
from grpo_watch.sources.completions.text_reduction import TextQuality, quality

PROSE = (
    "First the train leaves at noon and rides three hours to the coast, where the second one is waiting. Since both "
    "go at the same speed, the distance between them stays 40 kilometres, so the answer must be half of that plus ten."
)
CODE = "def add(left, right):\n    total = left\n    if total < 0:\n        raise ValueError\n    return 1\n"


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        PROSE * 2,
        CODE,
        CODE + PROSE,
        "fedfeeecheeeeheeeceihefaej",
        "5 3 4 6 7 8 9 1 2\n6 7 2 1 9 5 3 4 8\n1 9 8 3 4 2 5 6 7\n8 5 9 7 6 1 4 2 3\n",
        "因为火车在中午出发,三个小时后到达海边,所以两列火车之间的距离保持不变。",
        "彼は東京に住んでいます。The answer in English is: he lives in Tokyo.",
        "The Russian word is вода, in Greek it is νερό, in Chinese 水.",
    ],
)
def test_sound_texts(text: str) -> None:
    """Prose, code, tables, other scripts, and what a tiny model says."""
    assert quality(text) is TextQuality.SOUND


@pytest.mark.parametrize(
    "text",
    [
        "!" * 400,
        "!" * 20,
        PROSE + " and so on" * 120,
        "UUUUUUUUUUUUUUUUUUUUUU the",
        "abcabcabcabcabcabcabcabc",
        "So the answer is 4. " * 40,
        "水" * 300,
    ],
)
def test_loops(text: str) -> None:
    """One character, a phrase, a sentence, at the end of sound prose too."""
    assert quality(text) is TextQuality.LOOPING


def test_scraps_of_many_scripts() -> None:
    """Weights that were not reloaded sample from the whole vocabulary."""
    text = "atom\u0434\u0436\u0438\u0448的一个ตัวอย่าง\u05e9\u05dc\u05d2kerja \u0645\u0631\u062d"
    assert quality(text) is TextQuality.SCATTERED
    assert quality("a \ufffd\ufffd b \ufffd c and so on") is TextQuality.SCATTERED


@pytest.mark.parametrize("text", ["", "yes", "  42  \n" + " " * 40, "!" * 15])
def test_short_texts_are_not_judged(text: str) -> None:
    """A short answer may well be one character."""
    assert quality(text) is TextQuality.SHORT


def test_a_long_passage_over_and_over_is_a_loop() -> None:
    """A period of 600 characters, three times: too long for compression of the last thousand, but exact."""
    passage = PROSE + PROSE[::-1] + PROSE.swapcase()[:160]
    assert quality(CODE + passage) is TextQuality.SOUND
    assert quality(CODE + passage * 2) is TextQuality.SOUND
    assert quality(CODE + passage * 3) is TextQuality.LOOPING


def test_a_rule_of_dashes_at_the_end_is_no_loop() -> None:
    """Half of 512 characters must be filled."""
    assert quality(PROSE * 2 + "\n" + "-" * 80) is TextQuality.SOUND


def test_a_group_counts_what_it_holds() -> None:
    """Four texts: prose, its near copy, a loop, a short one."""
    texts = [PROSE, PROSE.replace("ten", "nine"), "ha " * 40, "yes"]
    (group,) = summarise_groups(["p"] * 4, texts, {}, 4).groups
    assert (group.unique, group.near_unique, group.judged, group.looping, group.scattered) == (4, 3, 3, 1, 0)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text(max_size=400))
def test_any_text_can_be_judged(text: str) -> None:
    """Never raises, and padding changes nothing."""
    assert quality(text) is quality(f"  {text}\n")
