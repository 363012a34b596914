"""Copies inside groups: how they lie, when they are proof, and when they are nothing."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from grpo_watch.detectors.rollouts.duplicate_completions import SHARED_SEED
from grpo_watch.engine.records import CompletionSummary, Record, Stream, Tick
from tests.support import records
from tests.support.detecting import Watched
from tests.support.records import a_group, row

RULE = "duplicate-completions"
STRIDE, ROBIN, ONE, DISTINCT = (0, 1, 2, 0, 1, 2), (0, 0, 1, 1, 2, 2), (0,) * 6, (0, 1, 2, 3, 4, 5)
FIRE = [("firing", 1, "critical")]


def a_batch(step: int, *patterns: tuple[int, ...], **changes: Any) -> CompletionSummary:
    """A batch of texts too long to be answers in tags."""
    return sized(records.a_batch(step, *patterns, **changes), 80)


def sized(batch: CompletionSummary, characters: int) -> CompletionSummary:
    """The batch with texts of this length."""
    return replace(batch, groups=tuple(replace(g, lengths=(characters,) * g.size) for g in batch.groups))


def steps(*batches: CompletionSummary, entropy: float | None = 2.0) -> list[Record]:
    """Each batch behind the row of its step."""
    known = {"reward_mean": 0.4, **({} if entropy is None else {"entropy": entropy})}
    return [record for batch in batches for record in (row(batch.step, **known), batch)]


def hint(run: Watched) -> str:
    return run.said[-1].reading.hint


@pytest.mark.parametrize(
    ("pattern", "groups", "layout"),
    [(STRIDE, 2, "stride"), (ROBIN, 2, "round-robin"), ((0, 1, 0, 1), 5, "stride"), ((0, 1) * 4, 2, "stride")],
)
def test_a_shared_seed_shows_in_the_first_batch(pattern: tuple[int, ...], groups: int, layout: str) -> None:
    """Two groups alike are proof; of four completions five groups (two likely answers: 2 of 8^5)."""
    run = Watched(RULE).feed_all(steps(a_batch(1, *[pattern] * groups)))
    assert run.changes == FIRE
    assert run.said[-1].reading.evidence["layout"] == layout
    assert run.said[-1].reading.evidence["pattern"] == str(pattern)
    assert "seed" in hint(run)


def test_small_groups_alike_are_proof_once_groups_differed() -> None:
    """Two groups of four: one batch after a diverse one, three at the start of a run (chance: 2 of 8^6)."""
    small, differing = (0, 1, 0, 1), (0, 1, 2, 3)
    start = [a_batch(step, small, small) for step in (1, 2, 3)]
    assert Watched(RULE).feed_all(steps(*start)).changes == [("firing", 3, "critical")]
    late = [a_batch(1, differing, differing), a_batch(2, small, small)]
    assert Watched(RULE).feed_all(steps(*late)).changes == [("firing", 2, "critical")]


def test_greedy_decoding_at_normal_entropy() -> None:
    """The policy is not sure, yet says one thing: the sampler's doing."""
    run = Watched(RULE).feed_all(steps(a_batch(1, ONE, ONE)))
    assert run.changes == FIRE
    assert "--temperature" in hint(run)


@pytest.mark.parametrize("pattern", [STRIDE, ONE])
def test_one_group_needs_three_distinct_batches(pattern: tuple[int, ...]) -> None:
    """Two are chance."""
    run = Watched(RULE).feed_all(steps(a_batch(1, pattern), a_batch(2, pattern)))
    assert run.changes == []
    run.feed_all(steps(a_batch(3, pattern)))
    assert run.changes == [("firing", 3, "critical")]
    assert run.said[-1].first_step == 1


def test_a_table_dumped_again_is_one_batch() -> None:
    """TRL and ms-swift repeat tables of reused batches, and the last one."""
    again = [replace(a_batch(1, STRIDE), step=step) for step in (1, 2, 3, 4)]
    assert Watched(RULE).feed_all(steps(*again)).changes == []


def test_a_collapse_is_a_warning() -> None:
    """Entropy 2.0 at first, 0.05 when the texts become one."""
    run = Watched(RULE).feed_all(steps(a_batch(1, DISTINCT, DISTINCT)))
    run.feed_all(steps(*(a_batch(s, ONE, ONE) for s in (2, 3, 4)), entropy=0.05))
    assert run.changes == [("firing", 4, "warning")]
    assert "epsilon_high" in hint(run)


def test_without_entropy_only_a_run_that_was_diverse_collapses() -> None:
    """From the start it is the sampler; later it may be either, so not a page."""
    early = [a_batch(step, ONE, ONE) for step in range(1, 9)]  # 8 x 10 copies, equal in 0.9: 10^-3.7
    assert Watched(RULE).feed_all(steps(*early, entropy=None)).changes == [("firing", 8, "critical")]
    late = [a_batch(1, DISTINCT, DISTINCT), *(a_batch(s, ONE, ONE) for s in (2, 3, 4))]
    assert Watched(RULE).feed_all(steps(*late, entropy=None)).changes == [("firing", 4, "warning")]


IRREGULAR = [
    a_batch(1, (0, 0, 0, 0, 0, 1), ONE),
    a_batch(2, (0, 1, 0, 0, 0, 0), ONE),
    a_batch(3, (0, 0, 1, 1, 1, 1), ONE),
]


def short(batch: CompletionSummary) -> CompletionSummary:
    """The batch with answers of 20 characters."""
    return sized(batch, 20)


def scored(batch: CompletionSummary, *rewards: float) -> CompletionSummary:
    """The batch with these rewards in turn."""
    return replace(
        batch,
        groups=tuple(
            replace(g, rewards={"f": tuple(rewards[i % len(rewards)] for i in range(g.size))}) for g in batch.groups
        ),
    )


def test_many_copies_without_a_rule() -> None:
    """4 of 6 long texts repeat, in a different place each time: near-greedy."""
    batches = [sized(batch, 200) for batch in IRREGULAR]
    assert Watched(RULE).feed_all(steps(*batches)).changes == [("firing", 3, "warning")]


PAIR, ELSEWHERE = (0, 1, 2, 1), ((0, 1, 2, 1), (0, 0, 1, 2), (0, 1, 2, 0), (0, 1, 1, 2))


@pytest.mark.parametrize("step", range(1, 6))
def test_small_batches_that_show_one_partial_pattern_again_and_again(step: int) -> None:
    """Two groups of four with one copy each, in the same place: six places are possible, so six groups are proof."""
    batches = [a_batch(s, PAIR, PAIR) for s in range(1, step + 1)]
    assert Watched(RULE).feed_all(steps(*batches)).changes == ([("firing", 3, "critical")] if step >= 3 else [])


def test_small_batches_whose_copies_move_are_no_shared_seed() -> None:
    moving = [sized(a_batch(s, ELSEWHERE[s % 4], ELSEWHERE[s % 4]), 40) for s in range(1, 20)]
    assert Watched(RULE).feed_all(steps(*moving)).changes == []


@pytest.mark.parametrize(
    ("batch", "entropy"), [((*ELSEWHERE, (0, 1, 2, 3)), 2.0), (ELSEWHERE, 0.05), (ELSEWHERE[:2], 2.0)]
)
def test_copies_in_some_groups_at_low_entropy_or_in_few_groups_are_no_seed(
    batch: tuple[tuple[int, ...], ...], entropy: float
) -> None:
    """Four of five groups; a policy that is sure; two groups per batch."""
    batches = [sized(a_batch(s, *batch), 200) for s in range(1, 9)]
    assert Watched(RULE).feed_all(steps(*batches, entropy=entropy)).changes == []


def test_answers_in_tags_repeat_and_are_no_fault() -> None:
    """``<answer>yes</answer>`` over and over: 20 characters each, no rule in it."""
    assert Watched(RULE).feed_all(steps(*[short(batch) for batch in IRREGULAR])).changes == []


def test_solved_prompts_stay_quiet() -> None:
    """Groups differed before, and now every text earns the best reward that one of them ever earned."""
    before = scored(a_batch(1, DISTINCT, DISTINCT), 0.0, 1.0)
    solved = [scored(a_batch(step, ONE, ONE), 1.0) for step in range(2, 8)]
    assert Watched(RULE).feed_all(steps(before, *solved)).changes == []


def punished(step: int, pattern: tuple[int, ...], right: tuple[float, ...], length: float) -> CompletionSummary:
    """Right answers count 1, and 0.01 is taken off for each word; the first texts are 10 words longer each."""
    lengths = tuple(length + 10.0 * number for number in reversed(pattern))
    totals = [good - 0.01 * long for good, long in zip(right, lengths, strict=True)]
    advantage = tuple(total - sum(totals) / len(totals) for total in totals)
    made = a_batch(step, pattern, pattern)
    scores = {"right": right, "length": lengths, "advantage": advantage}
    return replace(made, groups=tuple(replace(group, rewards=scores) for group in made.groups))


@pytest.mark.parametrize(
    ("weights", "right", "fires"),
    [("1 -0.01", 1.0, False), (None, 1.0, False), ("1 -0.01", 0.0, True)],
    ids=["solved", "solved, as the advantages show", "wrong"],
)
def test_what_is_solved_is_recognised_by_the_weighted_total(weights: str | None, right: float, *, fires: bool) -> None:
    """1 - 0.01 x 40 is the best there is, though the longest text has the highest sum."""
    before = punished(1, DISTINCT, (0.0,) * 5 + (1.0,), 40.0)
    later = [punished(step, ONE, (right,) * 6, 40.0) for step in range(2, 8)]
    run = Watched(RULE, **({} if weights is None else {"reward_weights": weights}))
    run.feed_all(each for batch in (before, *later) for each in (batch, row(batch.step, loss=0.0)))
    assert bool(run.changes) is fires


def test_one_text_that_earns_less_than_before_is_no_success() -> None:
    """The same without a logged entropy, but at half the best reward: a collapse, reported after three batches."""
    before = scored(a_batch(1, DISTINCT, DISTINCT), 0.0, 1.0)
    fallen = [scored(a_batch(step, ONE, ONE), 0.5) for step in range(2, 8)]
    run = Watched(RULE).feed_all(each for batch in (before, *fallen) for each in (batch, row(batch.step, loss=0.0)))
    assert run.changes == [("firing", 4, "warning")]


def test_a_resume_remembers_that_groups_were_diverse() -> None:
    """One text per group right after a resume, no entropy logged: not a page from the first batch."""
    fed = [a_batch(1, DISTINCT, DISTINCT), row(1, loss=0.0), row(2, loss=0.0)]
    again = [row(1, 2, loss=0.0), a_batch(2, ONE, ONE), row(2, 2, loss=0.0)]
    assert Watched(RULE).feed_all([*fed, *again]).changes == []


def test_nine_of_ten_groups_are_enough() -> None:
    """One group of ten got lucky; two of ten are too many for a pattern, and too few copies for a warning."""
    assert Watched(RULE).feed_all(steps(a_batch(1, *[STRIDE] * 9, DISTINCT))).changes == FIRE
    assert Watched(RULE).feed_all(steps(a_batch(1, *[STRIDE] * 8, DISTINCT, DISTINCT))).changes == []


def test_it_ends_with_a_diverse_batch() -> None:
    """The seed was fixed at the restart."""
    run = Watched(RULE).feed_all(steps(a_batch(1, STRIDE, STRIDE), a_batch(2, DISTINCT, DISTINCT)))
    assert run.changes == [*FIRE, ("resolved", 2, "critical")]


def test_one_accidental_copy_is_nothing() -> None:
    """1 of 12."""
    batches = (a_batch(s, DISTINCT, (0, 1, 2, 3, 4, 4)) for s in range(1, 20))
    assert Watched(RULE).feed_all(steps(*batches)).changes == []


@pytest.mark.parametrize(
    "changes",
    [{"lengths": (3,) * 6}, {"empty": 2}, {"prompts": 2}],
    ids=["short answers", "empty completions", "two prompts in one group"],
)
def test_groups_that_can_not_tell(changes: dict[str, object]) -> None:
    """Equal by task, by nature, or no group at all."""
    batches = []
    for step in (1, 2, 3, 4):
        groups = tuple(a_group(STRIDE, f"{step}-{index}", **changes) for index in range(2))
        batches.append(CompletionSummary("completions", step, groups))
    run = Watched(RULE).feed_all(steps(*batches))
    assert run.said == []


def test_evaluation_and_unrecovered_groups_are_not_read() -> None:
    """Evaluation may decode greedily; without groups nothing can repeat inside one."""
    lost = CompletionSummary("completions", 1, (), complete=False, reason="no prompt column")
    for batch in (a_batch(1, ONE, ONE, stream=Stream.EVAL), lost):
        assert Watched(RULE).feed_all(steps(batch)).said == []


def test_a_batch_waits_for_the_entropy_of_its_step() -> None:
    """Completions come before the row, or after: the same verdict."""
    run = Watched(RULE).feed(a_batch(1, ONE, ONE))
    assert run.said == []
    assert run.feed(row(1, entropy=2.0)).changes == FIRE


def test_without_any_row_the_last_tick_judges() -> None:
    """Only completions were found in the folder."""
    run = Watched(RULE).feed(a_batch(1, STRIDE, STRIDE), Tick(9.0, live=False))
    assert run.changes == FIRE


@pytest.mark.parametrize(("entropy", "severity"), [(0.9, "warning"), (1.1, "critical")])
def test_half_of_the_highest_entropy_parts_a_collapse_from_greedy_decoding(entropy: float, severity: str) -> None:
    """Entropy was 2.0: below 1.0 the policy is sure of its one text, above it only the sampler can be."""
    run = Watched(RULE).feed_all(steps(a_batch(1, DISTINCT, DISTINCT)))
    run.feed_all(steps(*(a_batch(s, ONE, ONE) for s in (2, 3, 4)), entropy=entropy))
    assert {said for _, _, said in run.changes} == {severity}


def answers(size: int, groups: int, sure: float, seed: int, batches: int = 120) -> list[CompletionSummary]:
    """Independent draws of ``<answer>yes</answer>`` (so likely) and ``<answer>no</answer>``."""
    rng = random.Random(seed)
    made = []
    for step in range(1, batches + 1):
        drawn = [[rng.random() < sure for _ in range(size)] for _ in range(groups)]
        made.append(short(a_batch(step, *[tuple([int(one != each[0]) for one in each]) for each in drawn])))
    return made


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("size", "groups"), [(4, 1), (4, 2), (8, 1), (2, 4), (2, 1), (6, 2)])
def test_yes_and_no_drawn_at_random_are_neither_a_seed_nor_greedy(size: int, groups: int, seed: int) -> None:
    """Strides and one-text batches come by chance: of four answers one in eight is a stride, of two every second."""
    run = Watched(RULE).feed_all(steps(*answers(size, groups, 0.5, seed), entropy=0.4))
    assert run.changes == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("size", "groups"), [(4, 1), (4, 2), (8, 1), (2, 4), (8, 4)])
@pytest.mark.parametrize("sure", [0.9, 0.97])
def test_a_policy_that_is_sure_of_its_answer_is_not_greedy(size: int, groups: int, sure: float, seed: int) -> None:
    """Without a logged entropy: of 97 % sure answers four are equal in 89 % of the groups."""
    run = Watched(RULE).feed_all(steps(*answers(size, groups, sure, seed), entropy=None))
    assert run.changes == []


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(("size", "groups"), [(2, 2), (3, 3), (4, 2), (4, 4), (8, 2)])
@pytest.mark.parametrize("sure", [0.5, 0.9])
def test_two_likely_tool_calls_are_no_fault_of_the_sampler(size: int, groups: int, sure: float, seed: int) -> None:
    """Long enough to be no answer in tags, from the first batch on, without a logged entropy."""
    drawn = [scored(sized(each, 90), 0.0, 1.0) for each in answers(size, groups, sure, seed, batches=30)]
    run = Watched(RULE).feed_all(steps(*drawn, entropy=None))
    assert {severity for _, _, severity in run.changes} <= {"info"}


@pytest.mark.parametrize(("entropy", "fires"), [(3.0, True), (0.6, False), (None, False)])
def test_short_texts_can_not_be_one_by_chance_at_a_high_entropy(entropy: float | None, *, fires: bool) -> None:
    """top_k 1 from step 25 on (TRL 1.16.0): texts of 11 characters, each earning the best reward that the run has seen.

    Some batches hold longer ones. It fires with the first one and neither resolves nor fires again.
    """
    before = [scored(sized(a_batch(s, *[DISTINCT] * 4), 25), 0.0, 1.0) for s in range(1, 25)]
    greedy = [scored(sized(a_batch(s, *[ONE] * 4), 14 if s % 4 == 3 else 11), 1.0) for s in range(25, 60)]
    run = Watched(RULE).feed_all(steps(*before, *greedy, entropy=entropy))
    assert (run.changes == [("firing", 25, "critical")]) == fires


def test_batches_that_come_before_their_rows_give_the_same_alert() -> None:
    before = [sized(a_batch(s, *[DISTINCT] * 4), 25) for s in range(1, 25)]
    greedy = [sized(a_batch(s, *[ONE] * 4), 11) for s in range(25, 40)]
    batches = [*before, *greedy]
    early = Watched(RULE).feed_all(steps(batches[0])).feed(*batches[1:6]).feed_all(steps(*batches[6:], entropy=3.0))
    late = Watched(RULE).feed_all(row(s, entropy=3.0) for s in range(1, 40)).feed(*batches)
    assert early.changes == late.changes == [("firing", 25, "critical")]


@pytest.mark.parametrize(("settings", "blames"), [({"temperature": 0.9}, "share a seed, or"), ({}, "is greedy")])
def test_a_known_temperature_is_not_greedy(settings: dict[str, float], blames: str) -> None:
    run = Watched(RULE, **settings).feed_all(steps(a_batch(1, DISTINCT, DISTINCT), a_batch(2, ONE, ONE)))
    run.feed_all(steps(a_batch(3, ONE, ONE), a_batch(4, ONE, ONE)))
    assert blames in run.said[-1].reading.message


LATE = [("firing", 3, "critical")]


@pytest.mark.parametrize(
    ("pattern", "groups", "entropy", "changes"),
    [
        (STRIDE, 2, 2.0, LATE),  # 15 ways: 6 groups, 10^-7.1
        (ROBIN, 2, None, LATE),
        ((0, 1, 0, 1), 4, 2.0, [("firing", 4, "critical")]),  # 3 ways: 12 groups 10^-5.7, 16 groups 10^-7.6
        ((0,) * 8, 2, 2.0, LATE),  # 42 copies, each equal by chance in 0.7: 10^-6.5
        ((0,) * 8, 8, None, [("firing", 9, "critical")]),  # 9 x 56 copies, equal in 0.97: 10^-6.7; 8: 10^-5.9
    ],
)
def test_short_texts_that_repeat_in_one_pattern_are_reported_once_chance_is_excluded(
    pattern: tuple[int, ...], groups: int, entropy: float | None, changes: list[tuple[str, int, str]]
) -> None:
    batches = [short(a_batch(step, *[pattern] * groups)) for step in range(1, 13)]
    assert Watched(RULE).feed_all(steps(*batches, entropy=entropy)).changes == changes


@pytest.mark.parametrize(
    ("characters", "mixed", "step"),
    [(20, (ONE, DISTINCT, DISTINCT), 24), (80, ((0, 0, 1, 2, 3, 4), DISTINCT, DISTINCT), 21)],
)
def test_greedy_decoding_that_comes_late_takes_several_batches(
    characters: int, mixed: tuple[tuple[int, ...], ...], step: int
) -> None:
    """Long texts at 2 nats a token: at once. Short: 20 of 60 groups held one text, 12 more by chance is 10^-5.6."""
    before = [sized(a_batch(s, *mixed), characters) for s in range(1, 21)]
    greedy = [sized(a_batch(s, *[ONE] * 4), characters) for s in range(21, 31)]
    assert Watched(RULE).feed_all(steps(*before, *greedy)).changes == [("firing", step, "critical")]


def test_a_group_of_several_texts_disproves_greedy_decoding() -> None:
    """One group of twelve differs (no entropy): what follows is at most a collapse."""
    first = a_batch(1, *[ONE] * 11, (0, 0, 0, 0, 0, 1))
    later = [a_batch(step, *[ONE] * 12) for step in range(2, 6)]
    run = Watched(RULE).feed_all(steps(*later, entropy=None))
    assert run.changes == [("firing", 4, "critical")]
    run = Watched(RULE).feed_all(steps(first, *later, entropy=None))
    assert {severity for _, _, severity in run.changes[1:]} <= {"warning"}


def test_long_texts_of_which_a_few_come_again_are_no_proof_at_once() -> None:
    """Two long answers in other places before: that two groups lie alike is chance, that six of 15 ways do is not."""
    before = [a_batch(step, (0, 1, 1, 0, 0, 1), (0, 0, 1, 0, 1, 0)) for step in range(1, 4)]
    seed = [a_batch(step, STRIDE, STRIDE) for step in range(4, 8)]
    assert ("firing", 4, "critical") not in Watched(RULE).feed_all(steps(*before, *seed[:2])).changes
    assert Watched(RULE).feed_all(steps(*before, *seed)).changes[-1] == ("firing", 6, "critical")


@pytest.mark.parametrize(("rewards", "severity"), [((0.0, 1.0, 0.5), "info"), ((1.0,), "warning")])
def test_copies_without_a_rule_are_an_info_while_rewards_differ(rewards: tuple[float, ...], severity: str) -> None:
    """Sixty per cent equal answers of a task that extracts JSON."""
    batches = [scored(sized(batch, 200), *rewards) for batch in IRREGULAR]
    first = scored(a_batch(0, DISTINCT, DISTINCT), 2.0)
    assert Watched(RULE).feed_all(steps(first, *batches)).changes == [("firing", 3, severity)]


def seeded(copies: int, texts: int, seed: int, *, stride: bool, batches: int = 12) -> list[CompletionSummary]:
    """Four groups per batch of ``copies`` ranks with one seed; two of three answers are one text."""
    rng = random.Random(seed)

    def pattern() -> tuple[int, ...]:
        drawn = [0 if rng.random() < 2 / 3 else rng.randrange(1, 4) for _ in range(texts)]
        laid = drawn * copies if stride else [one for one in drawn for _ in range(copies)]
        first = {text: number for number, text in enumerate(dict.fromkeys(laid))}
        return tuple(first[text] for text in laid)

    return [a_batch(step, *(pattern() for _ in range(4))) for step in range(1, batches + 1)]


@pytest.mark.parametrize("characters", [30, 90])
@pytest.mark.parametrize("entropy", [None, 0.02, 0.6])
@pytest.mark.parametrize(("copies", "texts", "stride"), [(2, 4, True), (2, 4, False), (4, 2, True), (2, 2, True)])
def test_a_shared_seed_among_few_answers(
    copies: int, texts: int, characters: int, entropy: float | None, *, stride: bool
) -> None:
    """Each group shows another pattern; equal are, in every group, the texts of one place."""
    batches = [sized(batch, characters) for batch in seeded(copies, texts, 3, stride=stride)]
    run = Watched(RULE).feed_all(steps(*batches, entropy=entropy))
    critical = [said for said in run.said if said.reading.severity == "critical"]
    assert critical
    assert "share a seed" in critical[-1].reading.message


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_few_answers_that_are_drawn_by_chance_share_no_seed(seed: int) -> None:
    """Tool calls of 90 characters, two texts per prompt, three groups per batch: chance lays some alike."""
    rng = random.Random(seed)
    patterns = [
        tuple({text: number for number, text in enumerate(dict.fromkeys(drawn))}[text] for text in drawn)
        for drawn in ([rng.random() < 0.75 for _ in range(8)] for _ in range(600))
    ]
    batches = [scored(sized(a_batch(step, *patterns[3 * step : 3 * step + 3]), 90), 0.0, 1.0) for step in range(1, 200)]
    for entropy in (None, 0.02, 0.6):
        run = Watched(RULE).feed_all(steps(*batches, entropy=entropy))
        assert {severity for _, _, severity in run.changes} <= {"info"}


def test_a_policy_that_was_always_sure_did_not_collapse() -> None:
    """Entropy 0.05 from the start while rewards differ: few right answers. Without rewards nobody knows."""
    batches = [sized(batch, 200) for batch in IRREGULAR]
    taught = [scored(batch, 0.0, 1.0) for batch in batches]
    assert Watched(RULE).feed_all(steps(*taught, entropy=0.05)).changes == [("firing", 3, "info")]
    assert Watched(RULE).feed_all(steps(*batches, entropy=0.05)).changes == [("firing", 3, "warning")]
    brief = [sized(batch, 20) for batch in batches]
    assert Watched(RULE).feed_all(steps(*brief, entropy=0.05)).changes == []


def test_copies_in_solved_groups_are_no_harm() -> None:
    """Per batch one group with 1s and 0s, three of 1s only: of the groups that are not solved all teach."""

    def batch(step: int) -> CompletionSummary:
        groups = sized(a_batch(step, (0, 1, 0, 0, 0, 0), ONE, (0, 0, 0, 1, 0, 0), ONE), 200).groups
        earned = [(0.0, 1.0, 1.0, 1.0, 1.0, 1.0), *[(1.0,) * 6] * 3]
        return CompletionSummary(
            "c", step, tuple(replace(g, rewards={"f": e}) for g, e in zip(groups, earned, strict=True))
        )

    assert {each[2] for each in Watched(RULE).feed_all(steps(*map(batch, range(1, 9)))).changes} == {"info"}


def test_what_to_do_about_a_shared_seed_holds_for_any_version() -> None:
    """A release that cured it once is none to wait for in a run of a later one."""
    assert re.search(r"\d+\.\d+|[Ff]ixed", SHARED_SEED.hint) is None
