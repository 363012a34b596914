"""Completions become group summaries: patterns, sizes, empty texts, excerpts."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_watch.engine.metric_names import MAX_FUNCTIONS
from grpo_watch.engine.records import GroupSummary
from grpo_watch.sources.completions.completion_table import by_name
from grpo_watch.sources.completions.summarise import SAMPLED, summarise_groups
from grpo_watch.sources.completions.text_reduction import EXCERPT, excerpt, plain


def one_group(texts: list[object], prompt: object = "p", **rewards: list[object]) -> GroupSummary:
    grouping = summarise_groups([prompt] * len(texts), texts, rewards, len(texts))
    assert grouping.reason == ""
    (group,) = grouping.groups
    return group


def test_equal_texts_are_numbered_by_first_appearance() -> None:
    group = one_group(["a b", "c", "a b", "d", "c", "a b"])
    assert group.pattern == (0, 1, 0, 2, 1, 0)
    assert (group.size, group.unique) == (6, 3)
    assert group.lengths == (3, 1, 3, 1, 1, 3)


def test_special_tokens_do_not_count_as_text() -> None:
    """ms-swift 3.12 leaves the end token in the text: with and without it is the same text, alone it is empty."""
    group = one_group(
        ["four<|im_end|>", "four", "<|im_end|>", "</s>", " \n", "<pad><pad>", "<\uff5cend\u2581of\uff5c>"]
    )
    assert group.lengths[:2] == (4, 4)
    assert group.pattern[:2] == (0, 0)
    assert group.empty == 5


@pytest.mark.parametrize(
    "token",
    [
        "<|im_end|>",
        "<|endoftext|>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<s>",
        "</s>",
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        "<start_of_turn>",
        "<end_of_turn>",
        "[PAD]",
        "[EOS]",
        "[SEP]",
        "[CLS]",
    ],
)
def test_every_special_token_is_seen(token: str) -> None:
    assert plain(f"a {token}b") == "a b"


def test_text_in_angle_brackets_is_text() -> None:
    group = one_group(["<think>so</think>", "a <b> [c]"])
    assert group.lengths == (17, 9)
    assert group.empty == 0


def test_groups_are_consecutive_slices_of_the_configured_size() -> None:
    grouping = summarise_groups(["p", "p", "p", "q"], ["a", "a", "b", "c"], {"f": [1, 2, 3, 4]}, 2)
    assert [group.prompts for group in grouping.groups] == [1, 2]
    assert [group.pattern for group in grouping.groups] == [(0, 0), (0, 1)]
    assert [group.rewards["f"] for group in grouping.groups] == [(1.0, 2.0), (3.0, 4.0)]


def test_unknown_size_is_the_common_divisor_of_the_runs_of_equal_prompts() -> None:
    """A prompt that the sampler drew twice in a row makes a run of two groups."""
    prompts = ["p"] * 4 + ["q"] * 8 + ["p"] * 4
    grouping = summarise_groups(prompts, [str(number) for number in range(16)], {}, None)
    assert [group.size for group in grouping.groups] == [4, 4, 4, 4]
    assert grouping.groups[0].prompt_id == grouping.groups[3].prompt_id != grouping.groups[1].prompt_id


def test_groups_that_can_not_be_recovered_are_reported() -> None:
    cases = [
        (["p", "p", "q"], 2, "3 rows are no multiple of the group size 2"),
        (["p", "q", "r", "s"], None, "not configured and the prompts do not show it"),
        (["p", "p", "p", "q", "q"], None, "not configured and the prompts do not show it"),
        ([], 4, "an empty table"),
    ]
    for prompts, size, reason in cases:
        grouping = summarise_groups(prompts, ["x"] * len(prompts), {}, size)
        assert grouping.groups == ()
        assert reason in grouping.reason
    assert "2 prompts but 1 completions" in summarise_groups(["p", "p"], ["x"], {}, 2).reason


def test_rewards_that_are_no_numbers_become_none() -> None:
    values: list[object] = [0.5, math.nan, None, "0.5", 3, math.inf, 10**400, True]
    group = one_group([str(number) for number in range(8)], f=values, short=[1.0])
    assert group.rewards == {"f": (0.5, None, None, None, 3.0, math.inf, None, 1.0)}


def test_conversations_are_compared_by_their_text() -> None:
    """TRL ≥ 1.15 dumps conversations; images are stripped to their type."""
    prompt = [
        {"role": "system", "content": None},
        {"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": "What is it?"}]},
    ]
    said = [{"role": "assistant", "content": "A cat."}]
    group = one_group([said, "A cat.", [{"role": "assistant", "content": ""}], None], prompt)
    assert group.pattern == (0, 0, 1, 1)
    assert group.lengths == (6, 6, 0, 0)
    assert group.empty == 2


def test_different_tool_calls_are_different_completions() -> None:
    calls = [[{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": name}}]}] for name in "ab"]
    assert one_group([*calls]).pattern == (0, 1)


def test_tool_calls_that_differ_in_their_arguments_are_different_completions() -> None:
    """transformers' chat templates and TRL hold the arguments as a dictionary, OpenAI's API as a text."""
    calls: list[object] = [
        [{"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": said}}]}]
        for said in ({"a": 1}, {"a": 2}, {"b": 2}, {"a": 1}, '{"a": 1}')
    ]
    (group,) = summarise_groups(["p"] * 5, calls, {}, 5).groups
    assert group.pattern == (0, 1, 2, 0, 3)


@pytest.mark.parametrize("key", ["reasoning_content", "thinking"])
def test_one_answer_after_different_thoughts_is_no_copy(key: str) -> None:
    said = [[{"role": "assistant", key: thought, "content": "42"}] for thought in ("six by seven", "half of 84")]
    assert one_group([*said]).pattern == (0, 1)


def test_example_is_the_text_repeated_most() -> None:
    group = one_group(["", "", "", "rare", "often", "often"])
    assert group.example == "often"
    assert one_group(["", "</s>"]).example == ""
    assert summarise_groups(["p"] * 2, ["a", "b"], {}, 2, examples=False).groups[0].example == ""


def test_excerpt_hides_secrets_and_control_characters() -> None:
    assert excerpt("mail me@example.org now") == "mail […] now"
    assert excerpt("key sk-abcdefgh12345678 end") == "key *** end"
    assert excerpt('{"token": "geheim77"} --password hunter2') == '{"token": "***"} --password ***'
    assert excerpt("call 0170 1234567 now") == "call […] now"
    assert excerpt("a\n\x1b[31mb\u202e") == "a\\n\\x1b[31mb\\u202e"
    assert excerpt("x" * 1000) == "x" * EXCERPT
    assert excerpt("天地玄黄") == "天地玄黄"


def test_digest_distinguishes_a_repeated_dump_from_another_batch() -> None:
    first = summarise_groups(["p", "p"], ["a", "b"], {"f": [1.0, 2.0]}, 2)
    assert summarise_groups(["p", "p"], ["a", "b"], {}, 2).digest == first.digest
    for prompts, texts in ((["q", "q"], ["a", "b"]), (["p", "p"], ["b", "a"]), (["p", "p"], ["a", "c"])):
        other = summarise_groups(prompts, texts, {}, 2)
        assert other.digest != first.digest
        assert other.groups[0].digest != first.groups[0].digest
    assert summarise_groups(["p", "p"], ["c", "d"], {}, 2).prompts == first.prompts


def test_lone_surrogates_are_text_too() -> None:
    assert one_group(["\ud800", "\udfff"]).pattern == (0, 1)
    assert excerpt("\ud800") == "\\ud800"


def test_token_ids_are_compared_as_they_are() -> None:
    """open-instruct dumps token ids: equal lists are equal texts, lengths are tokens, openings the first sixteen."""
    start = list(range(100, 116))
    group = one_group([[*start, 1, 2], [*start, 1, 2], [*start, 3], [99, *start], [7]])
    assert group.pattern == (0, 0, 1, 2, 3)
    assert group.openings == (0, 0, 0, 1, 2)
    assert group.lengths == (18, 18, 17, 17, 1)
    assert group.empty == 0


def test_a_list_that_is_no_token_ids_is_recognised_by_its_text() -> None:
    assert one_group([[1, "a"], [1, "a"], [1, None], []]).pattern == (0, 0, 1, 2)
    assert one_group([[2**70], [2**70], [True]]).pattern == (0, 0, 1)


def test_openings_are_the_first_64_characters() -> None:
    same = "x" * 64
    group = one_group([same + "a", same + "b", same[:-1] + "c", same])
    assert group.pattern == (0, 1, 2, 3)
    assert group.openings == (0, 0, 1, 0)


def test_marks_recognise_the_same_text_in_another_batch() -> None:
    """By the text's number in the pattern; another prompt changes nothing; at most 16."""
    first, later = one_group(["a", "b", "a"]), one_group(["c", "b", "b"], "q")
    assert len(first.marks) == 2
    assert first.marks[1] == later.marks[1]
    assert len({*first.marks, *later.marks}) == 3
    assert len(one_group([str(number) for number in range(20)]).marks) == 16


def test_a_column_of_another_length_is_named() -> None:
    grouping = summarise_groups(["p", "p"], ["a", "b"], {"f": [1.0], "g": [1.0, 2.0]}, 2)
    assert grouping.odd == ("f",)
    assert grouping.groups[0].rewards == {"g": (1.0, 2.0)}


def test_a_large_batch_is_looked_through_in_part() -> None:
    """Whole groups of together at least 64 texts, chosen by the prompts: not by place, so the order changes nothing."""
    prompts = [f"prompt {number // 8}" for number in range(400)]
    texts = [f"{number} is the answer to what was asked here" for number in range(400)]
    groups = summarise_groups(prompts, texts, {}, 8).groups
    looked = {group.prompt_id for group in groups if group.judged is not None}
    assert len(looked) == SAMPLED // 8
    assert all((group.judged, group.near_unique is None) in {(8, False), (None, True)} for group in groups)
    again = summarise_groups(prompts[::-1], texts[::-1], {}, 8).groups
    assert {group.prompt_id for group in again if group.judged is not None} == looked


def test_every_group_of_a_small_batch_is_looked_through() -> None:
    prompts = [f"prompt {number // 8}" for number in range(64)]
    groups = summarise_groups(prompts, [f"text number {number} of some length" for number in range(64)], {}, 8).groups
    assert [group.judged for group in groups] == [8] * 8


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["", "a", "b<eos>", "b", "c c"]), min_size=2, max_size=12), st.integers(1, 6))
def test_summaries_agree_with_a_plain_count(texts: list[str], size: int) -> None:
    grouping = summarise_groups(["p"] * len(texts), texts, {}, size)
    if len(texts) % size:
        assert grouping.groups == ()
        return
    reported = [text.replace("<eos>", "") for text in texts]
    for at, group in zip(range(0, len(texts), size), grouping.groups, strict=True):
        part = reported[at : at + size]
        assert group.unique == len(set(part))
        assert group.lengths == tuple(map(len, part))
        assert group.empty == sum(not text for text in part)
        equal = [[one == other for one in part] for other in part]
        assert [[one == other for one in group.pattern] for other in group.pattern] == equal
        assert group.pattern[0] == 0


def test_a_table_of_ten_thousand_columns_has_only_so_many_reward_functions() -> None:
    group = one_group(["a", "b"], **{f"column {number}": [0.0, 1.0] for number in range(10_000)}, advantage=[-1.0, 1.0])
    assert list(group.rewards) == [*(f"column {number}" for number in range(MAX_FUNCTIONS)), "advantage"]


def test_each_cell_of_a_table_is_looked_up_once() -> None:
    looked: list[str] = []

    class Row(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            looked.append(key)
            return super().get(key, default)

    assert by_name([Row(a=1), Row(b=2), Row(a=3, b=4)]) == {"a": [1, None, 3], "b": [None, 2, 4]}
    assert len(looked) == 6


def test_advantages_show_how_the_trainer_cut_a_batch_of_mixed_prompts() -> None:
    """Rewards 0, 1, 2 and 5 less their mean of 2, eight times: fours are centred, and pairs are not."""
    advantages = [-2.0, -1.0, 0.0, 3.0, 3.0, 0.0, -1.0, -2.0] * 4
    prompts = [f"p{number}" for number in range(32)]
    found = summarise_groups(prompts, prompts, {"advantage": advantages}, None)
    assert [(group.size, group.prompts) for group in found.groups] == [(4, 4)] * 8
    halves = [f"p{number // 2}" for number in range(32)]
    found = summarise_groups(halves, prompts, {"advantage": advantages}, None)
    assert [(group.size, group.prompts) for group in found.groups] == [(4, 2)] * 8
    few = summarise_groups(halves[:28], prompts[:28], {"advantage": advantages[:28]}, None)
    assert {(group.size, group.prompts) for group in few.groups} == {(2, 1)}


def test_a_baseline_of_the_batch_cuts_no_groups() -> None:
    """REINFORCE++ with binary rewards, one completion of each prompt, or four: parts of a batch sum to 0 by chance."""
    texts = [f"t{number}" for number in range(16)]
    for step in range(200):
        rng = Random(step)
        rewards = [float(rng.random() < 0.5) for _ in range(16)]
        advantages = [reward - sum(rewards) / 16 for reward in rewards]
        for each, sizes in ((1, []), (4, [4] * 4)):
            prompts = [f"p{number // each}" for number in range(16)]
            found = summarise_groups(prompts, texts, {"advantage": advantages}, None)
            assert [group.size for group in found.groups] == sizes


@pytest.mark.parametrize(
    "advantages",
    [
        [-3.0, -1.0, 0.0, 1.0, 2.0, 1.0, 0.5, -0.5],  # centred over the batch alone
        [-1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],  # one pair with a spread shows no size
        [float("nan"), 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0],
        [0.0] * 8,
    ],
)
def test_other_advantages_show_no_group_size(advantages: list[float]) -> None:
    prompts = [f"p{number}" for number in range(8)]
    found = summarise_groups(prompts, prompts, {"advantage": advantages}, None)
    assert "the prompts do not show it" in found.reason
