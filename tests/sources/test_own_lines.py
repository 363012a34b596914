"""The rows that own training loops print, and the text around them that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.engine.records import EventKind, RawRow, RunEvent
from grpo_watch.sources.base import recalled, remembered
from grpo_watch.sources.console.source import ConsoleSource, signs_of
from grpo_watch.sources.rows.fields import bare_line, fields_of
from grpo_watch.sources.rows.own_lines import OwnLines
from grpo_watch.sources.rows.own_rows import OwnRows

FORMS = (
    "step {n} | reward {r} | kl 0.01",
    "step={n} reward={r} kl=0.01",
    "step {n}/500: reward: {r}, kl: 0.01",
    "[step {n}/500] reward: {r} kl: 0.01",
    "2026-01-02 10:00:00,123 - INFO - Step {n} | Avg Reward: {r} | KL: 0.01",
    "10:00:00 SUCCESS Step {n} | Reward: {r} | Seq. Length: 345.6 tokens/sample",
    "Epoch:[1/1]({n}/500), Reward: {r}, KL_ref: -0.0010",
    "step {n}\uff5creward\uff1a{r}\uff5ckl\uff1a0.01",
    "\x1b[32mUpdate {n}\x1b[0m: mean_reward={r} | grad_norm=1.2",
    "INFO:root:Step {n}/500: loss=0.1, reward={r}, kl=0.01",
    "[2026-01-02 10:00:00,123][__main__][INFO] - Step {n}/500 | Loss: 0.1 | Avg Reward: {r} | KL: 0.01",
    "2026-01-02 10:00:00.123 | INFO     | __main__:train:120 - step={n} loss=0.1 mean_reward={r}",
    "[01/02/26 10:00:00] INFO     step {n} loss=0.1 reward={r}                 trainer.py:120",
    "I0102 10:00:00.123456 140735 trainer.py:12] step {n} reward {r} kl 0.1",
    "[GRPO] Iteration {n}: avg_reward={r} (best 0.9), policy_loss=0.1, kl=0.01, time=12.3s",
    "\U0001f4ca Step {n}/500 | Reward: {r} \u00b1 0.1 | KL: 0.01",
    "{n}/500 loss: 0.1 reward: {r} kl: 0.01",
    "[{n}/500]  loss: -6.9, mean_reward: {r}, entropy:87.1",
    "0: step {n} loss 0.1 reward {r} kl 0.01",
    "Step   {n} | loss:  0.1000 | reward:  {r} | acc:  45.0% (9/20) | 5.3s",
    "Step {n} -> Loss: 0.1 -> Reward: {r}",
    "step={n} loss=tensor(0.1, device='cuda:0', grad_fn=<MeanBackward0>) reward=np.float64({r})",
    "Iteration {n} complete. Mean reward: {r}. Loss: 0.1. KL: 0.01.",
    "Training step {n} of 500: reward {r}, loss 0.2, kl 0.1",
    "global_step: {n}\trewards/mean: {r}\tactor/kl: 0.01",
    "Epoch  {n} | loss=0.0144 | reward=  {r} [-2.1 \u2026 16.3]",
    "step {n}: reward {r} (0.1, 0.9), kl 0.01",
    "\U0001f680 Step {n}/500 \u2502 \U0001f3af reward {r} \u00b1 0.3 \u2502 \U0001f4c9 loss 0.01 \u2502 \u2207 0.3",
    "update {n}: R={r} (\u03c3=0.3), L=0.01, KL=0.01, |g|=0.3, T=250.0",
    "step {n} (epoch 0): loss 0.01 (kl 0.01), rewards mean {r} std 0.3, grad 0.3",
    "step {n}: {{\n  'train/grad_norm': 0.5,\n  'train/kl_loss': 0.01,\n  'reward': {r},\n  'train/step': {n}\n}}",
)
TEXTS = (
    "Reward: 0.0\nThe answer is 12\nReward: 1.0\n" * 10,
    "step 1: add 3 and 4\nstep 2: reward the user with 5 points, kl 3\n",
    "Loading shards: 100% 3/3\nstep 5\n" * 10,
    "".join(f"question {n}: score 0.5 of 10\n" for n in range(10)),
)


def rows_of(path: Path, text: str) -> list[RawRow]:
    path.write_text(text, encoding="utf-8")
    source = ConsoleSource("log", path, [path.parent])
    return [item for item in [*source.poll(None), *source.finish()] if isinstance(item, RawRow)]


@pytest.mark.parametrize(
    "text",
    [
        "Step 40/500\nreward: 0.5\nloss: 0.1\nkl: 0.01\ngrad_norm: 0.5\n",
        "step 40/500 | reward 0.5 | loss 0.1 | kl 0.01 | grad_norm 0.5\n",
    ],
)
def test_the_only_row_of_a_log_is_read_where_it_shows_what_it_is(text: str) -> None:
    (row,) = signs_of(f"loading\n{text}".encode()).rows
    assert (row.step, row.values) == (40, {"reward": 0.5, "loss": 0.1, "kl": 0.01, "grad_norm": 0.5})


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_one_line(form: str, tmp_path: Path) -> None:
    text = "".join(f"{form.format(n=n, r=0.25 + n / 100)}\n" for n in range(1, 6))
    rows = rows_of(tmp_path / "train.log", text)
    assert [row.step for row in rows] == [1, 2, 3, 4, 5]
    assert all(
        0.26 <= value <= 0.3
        for row in rows
        for key, value in row.values.items()
        if "eward" in key and "std" not in key and value
    )
    assert signs_of(text.encode()).rows


BLOCKS = (
    "=== Step {n} ===\nReward: {r}\nKL: 0.01\nLoss: nan\n",
    '{{\n  "step": {n},\n  "reward_mean": {r},\n  "kl": 0.01,\n  "loss": 0.1\n}}\n',
    "-----\n| train/ |     |\n|   reward_mean   | {r} |\n|   loss   | 0.1 |\n|   step   | {n} |\n",
    "step {n} | loss 0.1 | grad_norm 0.3\nstep {n} | mean reward {r} | kl 0.01\n",
    "Iteration 1/1\nAverage Reward: {r}\nIteration 1/1, Step {n}/500, GRPO iter 1/1, loss: 0.1\n",
    "[rank0] step {n} | loss 0.1 | reward {r}\n[rank1] step {n} | loss 0.2 | reward 0.9\n",
    (
        "2026-01-02 03:04:05,678 - trainer - INFO - \U0001f4ca Iteration {n} metrics:\n"
        "2026-01-02 03:04:05,678 - trainer - INFO -   - Policy Loss: 0.1\n"
        "2026-01-02 03:04:05,679 - trainer - INFO -   - KL Divergence: 0.01\n"
        "2026-01-02 03:04:05,679 - trainer - INFO -   - Average Reward: {r}\n"
    ),
    "Step {n}\n  sample 0 reward: 1.0\n  sample 1 reward: 0.0\n  mean reward: {r}\n  loss: 0.1\n  kl: 0.01\n",
)


PROSE = (
    "After {m} steps reward 1.\n",
    "After {m} steps the score is 4 and the reward 2.\n",
    "At step {m} the best reward was 0.9 and the KL 0.5.\n",
)


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("prose", PROSE)
def test_sentences_between_rows_are_no_rows(prose: str, every: int, tmp_path: Path) -> None:
    """A completion's, or what a loop says of an earlier step."""
    text = "".join(
        (prose.format(m=n * 7 % 5 + 1) if n % every == 0 else "")
        + f"iteration {n}: loss 0.0{n} avg_reward 0.{n} kl 0.0{n}\n"
        for n in range(1, 10)
    )
    found = rows_of(tmp_path / "train.log", text)
    assert [(row.step, row.values["avg_reward"]) for row in found] == [(n, n / 10) for n in range(1, 10)]


def test_sentences_before_rows_do_not_move_them(tmp_path: Path) -> None:
    text = "".join(f"At step {n} the mean reward was 0.1 and KL 0.2.\n" for n in range(500, 510))
    text += "".join(f"{{'loss': 0.1, 'reward': 0.{n}, 'kl': 0.01, 'epoch': 0.0{n}}}\n" for n in range(1, 6))
    assert [row.values["reward"] for row in rows_of(tmp_path / "train.log", text)] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert [row.step for row in rows_of(tmp_path / "train.log", text)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("block", BLOCKS)
def test_forms_of_several_lines(block: str, tmp_path: Path) -> None:
    """What is printed of single completions, and by other ranks, is no value of the row."""
    text = "".join(block.format(n=n, r=0.25 + n / 100) for n in range(1, 7))
    rows = rows_of(tmp_path / "train.log", text)
    assert [row.step for row in rows] == [1, 2, 3, 4, 5, 6]
    rewards = [[value for key, value in row.values.items() if "eward" in key] for row in rows]
    assert rewards == [[0.25 + n / 100] for n in range(1, 7)]


@pytest.mark.parametrize("label", ["GRPO training", "Validation"])
def test_rows_that_share_their_line_with_a_bar(label: str, tmp_path: Path) -> None:
    """In a notebook, and in a console with both streams, the row follows the bar that was drawn last."""
    text = "".join(
        f"\r{label}:  {n}0%|█▊      | {5 * n}/50 [09:36<1:52:24, 44.96s/it]  Step {n} | loss=0.1 | reward=0.{n}\n"
        for n in (1, 2, 3, 4)
    )
    found = rows_of(tmp_path / "train.log", text)
    assert [(row.step, row.values) for row in found] == [(n, {"loss": 0.1, "reward": n / 10}) for n in (1, 2, 3, 4)]
    assert signs_of(text.encode()).rows


def test_rows_without_a_step_are_counted_and_sums_divided_by_their_count(tmp_path: Path) -> None:
    """A dictionary within the line is a part of it; one of a single completion between the rows is none."""
    text = "".join(
        f"2026-01-02 10:00:0{n},123 - train - INFO - rl_loss: 0.0, token_entropy: 0.5, "
        f"reward_data: {{'total_num': 256, 'total_reward': {64.0 * n}}}\n"
        "2026-01-02 10:00:00,123 - train - INFO - reward: {'format_reward': 1.0, 'reward': 0.0}\n"
        for n in range(1, 5)
    )
    rows = rows_of(tmp_path / "train.log", text)
    assert [(row.step, row.values["reward_data/reward"]) for row in rows] == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]


def test_a_step_that_begins_again_with_each_epoch_goes_on(tmp_path: Path) -> None:
    text = "".join(f"Epoch {epoch}/2 | Step {n}/3 | loss 0.1 | reward 0.{n}\n" for epoch in (1, 2) for n in (1, 2, 3))
    assert [row.step for row in rows_of(tmp_path / "train.log", text)] == [1, 2, 3, 4, 5, 6]


def test_a_second_run_in_the_same_log_begins_at_its_first_step(tmp_path: Path) -> None:
    text = "".join(f"step {n} | loss 0.1 | reward 0.{n}\n" for n in (1, 2, 3, 4)) * 2
    assert [row.step for row in rows_of(tmp_path / "train.log", text)] == [1, 2, 3, 4, 1, 2, 3, 4]


def test_the_updates_of_each_rollout_go_on(tmp_path: Path) -> None:
    """``[Update 1/4]`` behind ``[Update 4/4]`` is no new attempt; behind 3/4 it is."""
    counts = [1, 2, 3, 4] * 3
    text = "".join(f"[Update {n}/4] PolicyLoss=0.1 KL=0.0{n} RewardMean=0.{n}\n" for n in counts)
    assert [row.step for row in rows_of(tmp_path / "train.log", text)] == list(range(1, 13))
    text = "".join(f"[Update {n}/4] PolicyLoss=0.1 KL=0.0{n} RewardMean=0.{n}\n" for n in [1, 2, 3] * 2)
    assert [row.step for row in rows_of(tmp_path / "cut.log", text)] == [1, 2, 3, 1, 2, 3]


def test_a_coarse_step_counts_rows(tmp_path: Path) -> None:
    """Several rows at each step, each with other values."""
    text = "".join(f"epoch 1 | loss 0.{n} | reward 0.{n}\n" for n in range(1, 6))
    assert [row.step for row in rows_of(tmp_path / "train.log", text)] == [1, 2, 3, 4, 5]


def test_rows_without_a_reward_count_where_they_are_of_training_with_one(tmp_path: Path) -> None:
    """Supervised fine-tuning prints a loss and a learning rate; a KL or an entropy it does not."""
    own = "".join(f"[{n}/1000]  loss: -6.9, policy_loss: -6.9, kl-penalty: 0.01, entropy:87.1\n" for n in range(4))
    tuned = "".join(f"[{n}/1000]  loss: 2.9, lr: 1e-5\n" for n in range(4))
    assert len(rows_of(tmp_path / "own.log", own)) == 4
    assert rows_of(tmp_path / "tuned.log", tuned) == []


def test_the_step_before_a_dictionary_is_its_own(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "train.log", "".join(f"Step {n}/500: {{'reward': 0.5, 'loss': 0.1}}\n" for n in (10, 20)))
    assert [(row.step, row.max_steps) for row in rows] == [(10, 500), (20, 500)]


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-02 10:00:00,123] [INFO] [config.py:1005:print]   optimizer_params ... {'lr': 1e-06, 'eps': 1e-08}\n",
        "reward: {'format_reward': 1.0, 'answer_reward': 0.0, 'reward': 0.0}\n",
    ],
)
def test_a_printed_setting_or_a_single_completion_is_no_row(line: str, tmp_path: Path) -> None:
    assert rows_of(tmp_path / "train.log", line * 5) == []


def test_a_row_over_several_lines(tmp_path: Path) -> None:
    """The block ends with the line that stood last before the first one came again."""
    text = "".join(
        f"Output batch size: 84\nAverage Reward: {0.5 + n / 10}\nIteration 1/1, Step {n}/500, loss: 0.001\n"
        for n in range(1, 5)
    )
    rows = rows_of(tmp_path / "train.log", text)
    assert [(row.step, row.values) for row in rows] == [
        (n, {"Average Reward": 0.5 + n / 10, "loss": 0.001}) for n in range(1, 5)
    ]
    assert rows[0].max_steps == 500


def test_key_value_lines_with_the_step_first(tmp_path: Path) -> None:
    text = "".join(f"step: {n}\nreward: 0.{n}\nkl: 1,568.5\n" for n in range(1, 5))
    rows = rows_of(tmp_path / "train.log", text)
    assert [row.step for row in rows] == [1, 2, 3, 4]
    assert rows[-1].values == {"reward": 0.4, "kl": 1568.5}


@pytest.mark.parametrize("text", TEXTS)
def test_other_text_gives_no_row(text: str, tmp_path: Path) -> None:
    assert rows_of(tmp_path / "train.log", text) == []
    assert not signs_of(text.encode()).rows


def test_two_rows_are_no_log() -> None:
    lines = OwnLines()
    assert not any(lines.rows_of(b"step %d | reward 0.5 | kl 0.1" % n) for n in (1, 2))
    assert len(lines.rows_of(b"step 3 | reward 0.5 | kl 0.1")) == 3


def test_a_log_of_a_known_trainer_is_not_read_twice(tmp_path: Path) -> None:
    """What a callback prints beside the trainer's own rows is no row."""
    text = "".join(
        f"{{'loss': 0.1, 'reward': 0.5, 'step': {n}}}\nstep {n} | reward 0.25 | kl 0.1\n" for n in range(1, 8)
    )
    assert [row.values["reward"] for row in rows_of(tmp_path / "train.log", text)] == [0.5] * 7


def test_the_state_of_a_log_without_names_of_the_users_can_be_stored() -> None:
    first = OwnRows({})
    for n in (1, 2):
        assert first.rows_of(f"step {n} | reward 0.{n} | kl 0.01".encode()) == ()
    assert [row.step for row in OwnRows(first.state()).rows_of(b"step 3 | reward 0.3 | kl 0.01")] == [1, 2, 3]


def test_reading_goes_on_in_the_middle_of_a_block() -> None:
    """A reader made from the state of another gives the rows that this one would have given."""
    text = [line for n in range(1, 9) for line in (f"Reward: 0.{n}".encode(), f"Step {n}, loss: 0.1".encode())]
    whole = OwnLines()
    expected = [row.step for line in text for row in whole.rows_of(line)]
    for cut in range(len(text)):
        first = OwnLines()
        steps = [row.step for line in text[:cut] for row in first.rows_of(line)]
        second = recalled(OwnLines, remembered(first))
        assert steps + [row.step for line in text[cut:] for row in second.rows_of(line)] == expected


@pytest.mark.parametrize("state", ["[[true], 5]", '{"sure": true, "_held": 5}', '{"sure": true}', "{"])
def test_the_state_of_another_version_silences_no_log(state: str) -> None:
    lines = recalled(OwnLines, state)
    text = (line for n in range(6, 9) for line in (f"=== Step {n} ===", f"reward: 0.{n}", "loss: 0.2"))
    rows = [row for line in text for row in lines.rows_of(line.encode())] + list(lines.flush())
    assert [(row.step, row.values["reward"]) for row in rows] == [(n, n / 10) for n in range(6, 9)]


LATER = {
    "directly below": "=== Step {n}/500 ===\nreward: 0.{n}\nloss: 0.2\n{update}",
    "below a text": "=== Step {n}/500 ===\ngenerating...\nreward: 0.{n}\nTraining\nloss: 0.2\n{update}",
    "of the first update": "--- Iteration {n} ---\nreward: 0.{n}\nTraining\n{update}",
}


@pytest.mark.parametrize("layout", LATER)
@pytest.mark.parametrize("first", [2, 5])
def test_what_the_first_rows_lacked_belongs_to_later_ones(layout: str, first: int, tmp_path: Path) -> None:
    """A gradient norm, and what stands below it, from the first update on: one row may pass until they are awaited."""
    later = "grad_norm: 0.5\nmean length: 9\n"
    text = "".join(LATER[layout].format(n=n, update=later if n >= first else "skipped\n") for n in range(1, 10))
    rows = rows_of(tmp_path / "train.log", text)
    assert [(row.step, row.values["reward"]) for row in rows] == [(n, n / 10) for n in range(1, 10)]
    assert all("grad_norm" not in row.values for row in rows[: first - 1])
    assert {(row.values["grad_norm"], row.values["mean length"]) for row in rows[first:]} == {(0.5, 9.0)}


def test_numbers_below_other_text_join_no_row_of_one_line(tmp_path: Path) -> None:
    """The first of them is refused, and what stands below it, too."""
    evaluation = "Running held-out greedy decoding ...\n accuracy: 0.9\n mean length: 900\n entropy: 0.001\n"
    row = "step {n}/500 | reward 0.{n} | loss 0.1 | grad_norm 0.5\n"
    text = "".join(row.format(n=n) + (evaluation if n % 3 == 1 else "") for n in range(1, 10))
    assert {tuple(row.values) for row in rows_of(tmp_path / "train.log", text)} == {("reward", "loss", "grad_norm")}


def test_the_scores_of_samples_below_a_step_are_not_its_reward(tmp_path: Path) -> None:
    step = "--- Step {n}/500 ---\nSample 1:\n  reward: 1.0\nSample 2:\n reward: 0.0\n"
    text = "".join((step + "Summary\nmean reward: 0.{n}\nkl: 0.1\n").format(n=n) for n in range(1, 10))
    rows = rows_of(tmp_path / "train.log", text)
    assert [(row.step, row.values) for row in rows] == [(n, {"mean reward": n / 10, "kl": 0.1}) for n in range(1, 10)]


def test_zeros_of_few_decimals_are_small_numbers() -> None:
    lines = OwnLines()
    rows = [row for n in range(1, 4) for row in lines.rows_of(b"step %d | reward 0.5000 | kl 0.0000" % n)]
    assert {row.resolution for row in rows} == {0.5e-4}


@pytest.mark.parametrize(
    ("shown", "resolution"),
    [
        (("0.000412", "0.000398", "0.0"), None),  # Python's way to print a float that is zero
        (("0.000412", "0.000398", "0.00"), None),  # a key that shows more decimals elsewhere
        (("0.1", "0.2", "0.0"), 0.05),  # one decimal for every number
        (("0.0", "0.0", "0.0"), 0.05),
    ],
)
def test_a_zero_hides_what_the_other_values_of_its_key_leave_open(
    shown: tuple[str, ...], resolution: float | None
) -> None:
    lines = OwnLines()
    rows = [row for n, kl in enumerate(shown, 1) for row in lines.rows_of(f"step {n} reward 0.5 kl {kl}".encode())]
    assert rows[-1].resolution == resolution


def test_a_zero_of_one_decimal_is_zero_where_another_key_is_printed_in_full() -> None:
    lines = OwnLines()
    rewards = ("0.51", "0.5", "0.4875", "0.25")
    rows = [row for n, one in enumerate(rewards, 1) for row in lines.rows_of(f"step {n} reward {one} kl 0.0".encode())]
    assert rows[-1].resolution is None


def test_percent_signs_are_shares() -> None:
    (_, _, clipped) = fields_of("step 3 | reward 0.5 | clip 12%")
    assert clipped.value == 0.12


def test_a_list_of_rewards_gives_their_mean_and_spread(tmp_path: Path) -> None:
    """Steps without an update print fewer fields; the attempts between them are no steps."""
    text = "".join(
        f"[step {n}/9] SKIP rewards=[1,1] time=3s\n  [attempt {n}] SKIP (rewards=[0, 0]) - again\n"
        if n % 3 == 0
        else f"[step {n}/9] correct=1/2 rewards=['0.50', '0.00'] loss=0.1 kl=0.01 time=4s\n"
        for n in range(1, 10)
    )
    rows = rows_of(tmp_path / "train.log", text)
    assert [row.step for row in rows] == list(range(1, 10))
    assert rows[0].values == {
        "correct": 1.0, "rewards": 0.25, "rewards_std": 0.25, "loss": 0.1, "kl": 0.01, "time": 4.0
    }  # fmt: skip
    assert rows[2].values == {"rewards": 1.0, "rewards_std": 0.0, "time": 3.0}
    assert rows[2].resolution is None


def test_equal_rewards_of_few_decimals_have_a_spread_below_what_they_print() -> None:
    """0.80 and 0.80 may lie 0.01 apart."""
    (spread,) = (one for one in fields_of("step 1 rewards=[0.80, 0.80] kl=0.1") if one.name == "rewards_std")
    assert spread.text == "0.00"


def test_a_list_with_a_nan_has_no_mean() -> None:
    found = {one.name: one.text for one in fields_of("step 1 rewards=[0.80, NaN, 1e999] kl=0.1")}
    assert (found["rewards"], found["rewards_std"]) == ("nan", "nan")


def test_a_reward_alone_is_a_row(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "train.log", "".join(f"Step {n}0 | reward: 0.{n}\n" for n in range(1, 6)))
    assert [(row.step, row.values) for row in rows] == [(n * 10, {"reward": n / 10}) for n in range(1, 6)]


def test_rows_come_before_the_error_that_follows_them(tmp_path: Path) -> None:
    """The last row is held back until its end is known; the crash behind it must stand."""
    text = "".join(f"step {n} | reward 0.5 | kl 0.1" + (" | lr 1e-6" * (n % 2)) + "\n" for n in range(1, 7))
    text += "eval [1/2] OK\nTraceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nKeyError: 'x'\n"
    path = tmp_path / "train.log"
    path.write_text(text)
    source = ConsoleSource("train.log", path, [tmp_path])
    items = [*source.poll(None), *source.finish()]
    assert isinstance(items[-1], RunEvent)
    assert sum(isinstance(item, RawRow) for item in items) == 6


def test_the_banner_of_a_library_for_any_loop_hides_no_rows(tmp_path: Path) -> None:
    banner = "==((====))==  Unsloth 2026.2.1: Fast Qwen3 patching.\n"
    text = banner + "".join(f"step {n} | reward 0.{n} | loss 0.1\n" for n in range(1, 6))
    assert len(rows_of(tmp_path / "train.log", text)) == 5


def test_a_share_in_percent_has_two_decimals_more() -> None:
    assert [(one.value, one.text) for one in fields_of("kl: 0.5 | clip_ratio: 0.000%")][1] == (0.0, "0.00000")


def test_a_statistic_in_the_middle_of_a_name_is_no_group() -> None:
    """``reward_std: 0.3`` is one name; ``Reward: std=0.1`` a statistic of the reward."""
    assert [one.name for one in fields_of("step: 1 | reward_std: 0.3 | frac_reward_zero_std: 0.5")][1:] == [
        "reward_std",
        "frac_reward_zero_std",
    ]
    assert [one.name for one in fields_of("step: 1 | Reward: mean=0.3, std=0.1")][1:] == ["Reward mean", "Reward std"]


@pytest.mark.parametrize(("counter", "unknown"), [("", True), ("step {n} | ", False)])
def test_counted_rows_say_that_their_steps_are_unknown(
    counter: str,
    unknown: bool,  # noqa: FBT001
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = counter + "loss: 0.1{n} | reward: 0.5{n} | kl: 0.01\n"
    (tmp_path / "train.log").write_text("".join(line.format(n=n) for n in range(10, 30)))
    run_cli(["check", str(tmp_path / "train.log"), "--fail-on", "never"])
    assert ("steps are unknown: no row names one" in capsys.readouterr().out) is unknown


def test_a_misprint_among_the_first_rows_hides_none(tmp_path: Path) -> None:
    text = "".join(f"step {2623 if n == 2 else n} | loss 0.1 | reward 0.{n}\n" for n in range(1, 7))
    assert [row.step for row in rows_of(tmp_path / "train.log", text)] == [1, 2623, 3, 4, 5, 6]


ROW = "step {n} | reward: 0.3{n} | kl: 0.01 | loss: 0.1{n} | grad_norm: nan\n"


@pytest.mark.parametrize(
    "between",
    [
        "╭─ Eval ─╮\n│ reward: 0.9 │ loss: 2.0 │ kl: 0.5 │\n╰─╯\n",
        "┌─ Eval step {n} ─┐\n│ reward │ 0.9 │\n│ kl │ 0.5 │\n└─┘\n",
        "╭─ Config ─╮\n│ step: 7 │ reward: 0.9 │ loss: 2.0 │ kl: 0.5 │\n╰─╯\n",
        "eval\n├── reward: 0.9\n├── kl: 0.5\n└── loss: 2.0\n",
        "sample 0\n├── reward: 1.0\n├── entropy: 0.0\n├── reward_std: 0.0\n└── length: 1\n",
        "sample 0\n  ├── reward: 1.0\n  ├── entropy: 0.0\n  └── length: 1\n",
        "Benchmark results at step {n}:\n  reward: 0.9\n  loss: 2.0\n",
        "Running evaluation at step {n}:\n  reward: 0.9\n  loss: 2.0\n",
        "Sample rewards for step {n}:\n  reward: 1.0\n  length: 120\n",
        "Holdout at step {n}:\nreward: 0.9\nentropy: 0.5\n",
        "clip_ratio at step {n}: 0.02\n",
        "kl at step {n}: 9.3\nlr => 1e-3\n",
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_what_stands_between_rows_adds_nothing_to_them(between: str, first: bool, tmp_path: Path) -> None:  # noqa: FBT001
    parts = (between, ROW) if first and "{n}:" not in between else (ROW, between)
    text = "".join(part.format(n=n) for n in range(1, 8) for part in parts)
    rows = rows_of(tmp_path / "train.log", text)
    assert [row.step for row in rows] == list(range(1, 8))
    assert {tuple(row.values) for row in rows} == {("reward", "kl", "loss", "grad_norm")}
    assert {row.values["kl"] for row in rows} == {0.01}


@pytest.mark.parametrize(
    "panel",
    [
        "╭─ Eval ─╮\n│ step: {n} │ reward: 0.9 │ kl: 0.5 │\n╰─╯\n",
        "╭─ Sample ─╮\n│ reward │ 0.9 │\n│ kl │ 0.5 │\n╰─╯\n",
        "validation\n├── step: {n}\n├── reward: 0.9\n└── kl: 0.5\n",
        "gpu 0\n├── reward: 0.9\n└── kl: 0.5\n",
    ],
)
def test_panels_and_trees_of_something_else_are_no_rows(panel: str, tmp_path: Path) -> None:
    assert rows_of(tmp_path / "train.log", "".join(panel.format(n=n) for n in range(1, 8))) == []


@pytest.mark.parametrize("above", ["Example of output:", "Log format:", "Usage:"])
def test_a_quoted_row_is_no_run(above: str, tmp_path: Path) -> None:
    quoted = f"{above}\nstep 12: reward=0.5 kl=0.01 loss=0.2 grad_norm=1.0 entropy=0.5\nINFO done\n"
    assert rows_of(tmp_path / "train.log", f"INFO starting server\n{quoted}") == []


def test_blocks_below_the_title_of_an_evaluation_are_no_rows(tmp_path: Path) -> None:
    """Foreign lines, and the evaluation's own counter, stand between the title and its numbers."""
    block = "EVALUATION RESULTS\nCheckpoint: final\nEpoch: {n}\nMetrics:\n{{\n  'reward': 0.{n},\n  'loss': 0.1\n}}\n\n"
    assert rows_of(tmp_path / "results.txt", "".join(block.format(n=n) for n in range(1, 10))) == []


def test_an_evaluation_between_two_steps_ends_with_the_next_one(tmp_path: Path) -> None:
    step, evaluation = "Step {n}\nreward: 0.{n}\nloss: 0.2\n", "=== Evaluation ===\nsolved all\nreward: 0.9\n"
    text = "".join(step.format(n=n) + (evaluation if n % 3 == 0 else "") for n in range(1, 10))
    rows = rows_of(tmp_path / "train.log", text)
    assert [(row.step, row.values["reward"]) for row in rows] == [(n, n / 10) for n in range(1, 10)]


@pytest.mark.parametrize("title", ["Sample 0:", "--- completion 1 ---", "Example 12"])
def test_the_numbers_of_a_sample_join_no_row(tmp_path: Path, title: str) -> None:
    step = "Step {n}\nreward: 0.{n}\nkl: 0.1\nloss: 0.2\n"
    text = "".join(f"{step.format(n=n)}{title}\nan answer\nreward: 1.0\nkl: 9.0\n" for n in range(1, 10))
    rows = rows_of(tmp_path / "train.log", text)
    assert [(row.step, row.values["reward"], row.values["kl"]) for row in rows] == [
        (n, n / 10, 0.1) for n in range(1, 10)
    ]


@pytest.mark.parametrize("after", [0, 1, 2, 5])
@pytest.mark.parametrize(
    "evaluation", ["Evaluation\naccuracy: 0.5\n", "=== Evaluation ===\naccuracy: 0.5\nreward: 0.9\n"]
)
def test_rows_without_a_counter_go_on_after_an_evaluation(tmp_path: Path, after: int, evaluation: str) -> None:
    block = "reward: 0.{n}\nkl: 0.1\nloss: 0.2\n"
    text = "".join((evaluation if n == after + 1 else "") + block.format(n=n) for n in range(1, 10))
    rows = rows_of(tmp_path / "train.log", text)
    assert {n / 10 for n in range(2, 10)} <= {row.values["reward"] for row in rows}
    assert all("accuracy" not in row.values for row in rows if row.values["reward"] != 0.1)


ROW_PARTS = {
    "sample first": "Step {n}\nCompletion:\n  The answer is 42.\nreward: 0.{n}\nkl: 0.1\nloss: 0.2\n",
    "numbered sample first": "Step {n}\nSample 1:\n  The answer is 42.\nreward: 0.{n}\nkl: 0.1\nloss: 0.2\n",
    "sections": "Step {n}\nRewards\n  reward: 0.{n}\nCompletions\n  mean length: 9\nUpdate\n  kl: 0.1\n  loss: 0.2\n\n",
    "evaluation as a section": "Step {n}\nreward: 0.{n}\nEvaluation\naccuracy: 0.5\nkl: 0.1\nloss: 0.2\n",
    "evaluation as a heading": "Step {n}\nEvaluation\nreward: 0.{n}\nUpdate\nkl: 0.1\nloss: 0.2\n",
    "count of samples": "Samples 64\nreward: 0.{n}\nkl: 0.1\nloss: 0.2\nstep: {n}\n\n",
    "indented heading": "iter {n}\n  reward  0.{n}\n  Completions:\n  length  203.5\n  kl  0.1\n  loss  0.2\n",
    "sample within": "Step {n}\nreward: 0.{n}\nSample 1:\nan answer\nreward: 1.0\nkl: 0.1\nloss: 0.2\n",
}
"""Rows that a line such as a title stands above or within."""


@pytest.mark.parametrize("layout", ROW_PARTS)
def test_headings_and_samples_within_a_row_take_nothing_from_it(tmp_path: Path, layout: str) -> None:
    rows = rows_of(tmp_path / "train.log", "".join(ROW_PARTS[layout].format(n=n) for n in range(1, 10)))
    assert [(row.step, row.values["reward"], row.values["kl"], row.values["loss"]) for row in rows] == [
        (n, n / 10, 0.1, 0.2) for n in range(1, 10)
    ]


@pytest.mark.parametrize("before", ["", "2026-01-02 10:00:00,123 - INFO - "])
@pytest.mark.parametrize("between", ["accuracy: 0.5\n-----\nreward: 0.9\n", "an answer\nreward: 0.9\nmore\nkl: 9.0\n"])
@pytest.mark.parametrize("title", ["=== Evaluation ===", "Sample 3:", "Answers"])
def test_what_stands_between_rows_that_begin_with_their_step_is_of_none(
    tmp_path: Path, title: str, between: str, before: str
) -> None:
    """Whatever the title above it is, and whatever text stands between it and the numbers."""
    step = "Step {n}\nreward: 0.{n}\nkl: 0.1\nloss: 0.2\n"
    text = "".join(step.format(n=n) + (f"{title}\n{between}" if n % 3 == 0 else "") for n in range(1, 10))
    rows = rows_of(tmp_path / "train.log", "".join(f"{before}{line}\n" for line in text.splitlines()))
    assert [(row.step, row.values) for row in rows] == [
        (n, {"reward": n / 10, "kl": 0.1, "loss": 0.2}) for n in range(1, 10)
    ]


@pytest.mark.parametrize("bar", ["", "\r {n}0%|█   | {n}/9 [00:0{n}<00:09,  1.00s/it]\r          \r"])
def test_answers_that_look_like_rows_give_way_to_a_trainer_s_own(tmp_path: Path, bar: str) -> None:
    """Reward functions print what they score before the first row, and between the others."""
    answers = "".join(f"Step {n}: total return = {n} (rate = 0.05)\n" for n in range(1, 5))
    row = "{{'loss': 0.1, 'grad_norm': 1.0, 'reward': 0.{n}, 'kl': 0.01}}\n"
    text = "".join(answers + (bar + row).format(n=n) for n in range(1, 10))
    path = tmp_path / "train.log"
    path.write_text(text)
    source = ConsoleSource("log", path, [tmp_path])
    items = [*source.poll(None), *source.finish()]
    rows = [item for item in items if isinstance(item, RawRow) and "loss" in item.values]
    assert [(row.step, row.values["reward"]) for row in rows] == [(n, n / 10) for n in range(1, 10)]
    again = [item for item in items if isinstance(item, RunEvent)]
    assert [event.kind for event in again] == [EventKind.STARTED]


def test_an_evaluation_without_numbers_ends_with_the_next_step(tmp_path: Path) -> None:
    step = "Step {n}\nreward: 0.{n}\nloss: 0.2\n"
    text = "".join(step.format(n=n) + ("Evaluation\nsolved all\n" if n == 5 else "") for n in range(1, 10))
    assert [row.step for row in rows_of(tmp_path / "train.log", text)] == [*range(1, 10)]


def test_rows_without_steps_below_a_sample_stay_rows(tmp_path: Path) -> None:
    text = "".join(f"Sample:\nan answer\nreward: 0.{n}\nloss: 0.2\n" for n in range(1, 10))
    assert [row.values["reward"] for row in rows_of(tmp_path / "train.log", text)] == [n / 10 for n in range(1, 10)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 1: loss 0.1 (kl 0.02, lr 1e-06), R 0.5", {"loss": 0.1, "kl": 0.02, "lr": 1e-6, "R": 0.5}),
        ("step 1 | loss 0.1 | ||g|| 0.3 | \u2207\u03b8: 0.4", {"loss": 0.1, "grad_norm": 0.4}),
        (
            "step 1 | reward 0.41 (avg 0.4, std 0.2) | kl 0.1",
            {"reward": 0.41, "reward avg": 0.4, "reward std": 0.2, "kl": 0.1},
        ),
        ("step 1 | loss 0.1 | |g| 0.3 | kl 0.2", {"loss": 0.1, "grad_norm": 0.3, "kl": 0.2}),
        ("step 1 rewards mean 0.5 std 0.25 kl 0.01", {"rewards mean": 0.5, "rewards std": 0.25, "kl": 0.01}),
    ],
    ids=["in parentheses", "in formulas", "statistics in parentheses", "between pipes", "statistics of a group"],
)
def test_fields_are_found_where_people_write_them(line: str, found: dict[str, float]) -> None:
    assert {one.name: one.value for one in fields_of(line)[1:]} == found


@pytest.mark.parametrize(
    "line",
    [
        "Round 1: score 20 (bonus 4)",
        "step 1 | loss 0.1 | eval: (reward 0.9)",
        "step 1 | kl 0.1 | eval 0.5 (reward 0.9)",
        "step 1: kl 0.1, val (reward 0.9, kl 0.5)",
    ],
)
def test_what_else_stands_in_parentheses_is_no_metric(line: str) -> None:
    """Points of a game, and scores of an evaluation."""
    found = {one.name: one.value for one in fields_of(line)}
    assert not {"bonus", "reward"} & found.keys()
    assert found.get("kl") in {None, 0.1}


def test_a_line_of_signs_grows_by_a_few_words() -> None:
    _, text = bare_line("step 1 | reward 1 " + "\u03c3" * 1900)
    assert text.count("std") == 4


def test_words_in_parentheses_are_no_fields() -> None:
    assert [one.name for one in fields_of("step 1: loss 0.1, kl 0.2, entropy 0.4, R 0.5 (up)")][1:] == [
        "loss",
        "kl",
        "entropy",
    ]
