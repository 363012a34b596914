"""Configurations printed over many lines, with other processes' lines between them."""

from __future__ import annotations

import pprint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.engine.records import EventKind, Item, RawRow, RunConfig, RunEvent
from grpo_watch.frameworks.setting_names import flatten
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.settings.printed_config import PrintedConfig, leaves

PREFIX = "\x1b[36m(TaskRunner pid=7)\x1b[0m "
CONFIG = {
    "actor_rollout_ref": {
        "actor": {"use_kl_loss": False, "kl_loss_coef": 0.001, "optim": {"lr": 1e-06, "betas": [0.9, 0.999]}},
        "rollout": {"n": 8, "name": "vllm", "note": 'it\'s "quoted" {and} bracketed: 5, ' * 9},
    },
    "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False, "kl_ctrl": {"kl_coef": 0.001}},
    "trainer": {"total_epochs": 15, "total_training_steps": None, "logger": ["console", "wandb"]},
}


def items_of(tmp_path: Path, text: str) -> list[Item]:
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8")
    source = ConsoleSource("train.log", path, [tmp_path])
    return [*source.poll(None), *source.finish()]


def printed(width: int = 80) -> list[str]:
    return [PREFIX + line for line in pprint.pformat(CONFIG, width=width).splitlines()]


def settings(items: list[Item]) -> dict[str, object]:
    configs = [item for item in items if isinstance(item, RunConfig)]
    return {name: setting.value for config in configs for name, setting in config.settings.items()}


@pytest.mark.parametrize("width", [40, 80, 100_000])
def test_settings_of_a_printed_configuration(tmp_path: Path, width: int) -> None:
    lines = printed(width)
    lines.insert(min(3, len(lines)), "(raylet) a warning of another process {")
    got = settings(items_of(tmp_path, "\n".join(lines) + f"\n{PREFIX}step:1 - actor/pg_loss:0.5\n"))
    assert got == {
        "num_generations": 8,
        "beta": 0.0,
        "learning_rate": 1e-06,
        "num_train_epochs": 15,
    }


def test_a_configuration_without_an_end_swallows_no_row(tmp_path: Path) -> None:
    items = items_of(tmp_path, "\n".join([*printed()[:5], f"{PREFIX}step:1 - actor/pg_loss:0.5"]) + "\n")
    assert [item.step for item in items if isinstance(item, RawRow)] == [1]
    assert settings(items) == {}


def test_a_restart_inside_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = printed()
    path.write_text("\n".join(lines[:6]) + "\n", encoding="utf-8")
    source = ConsoleSource("train.log", path, [tmp_path])
    assert list(source.poll(None)) == []
    cursor = source.cursor()
    source.close()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert (
        settings(list(ConsoleSource("train.log", path, [tmp_path], cursor=cursor).poll(None)))["num_generations"] == 8
    )


def test_the_planned_number_of_steps_and_the_end(tmp_path: Path) -> None:
    items = items_of(
        tmp_path, f"{PREFIX}Total training steps: 290\n{PREFIX}(\"Final validation metrics: {{'a': 1}}\")\n"
    )
    assert settings(items) == {"steps_printed": 290}
    assert [item.kind for item in items if isinstance(item, RunEvent)] == [EventKind.FINISHED]


def test_a_resume_in_the_same_log(tmp_path: Path) -> None:
    """Validation at the resumed step comes again, then training goes on."""
    text = (
        "step:0 - val-core/x/acc/mean@1:0.1\nstep:1 - a/b:1\nstep:2 - a/b:2\nSetting global step to 1\n"
        "step:1 - val-core/x/acc/mean@1:0.2\nstep:2 - a/b:3\n"
    )
    reported = [
        (item.step, item.kind if isinstance(item, RunEvent) else item.stream)
        for item in items_of(tmp_path, text)
        if isinstance(item, (RunEvent, RawRow))
    ]
    assert reported == [(0, "eval"), (1, None), (2, None), (1, EventKind.STARTED), (1, "eval"), (2, None)]


WORDS = st.text("abc_", min_size=1, max_size=5)
VALUES = st.one_of(
    st.booleans(),
    st.integers(0, 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(" ab'\"{}[](),:\\", max_size=90),
)


FLAT = st.dictionaries(WORDS, VALUES, min_size=1, max_size=3)


@given(st.dictionaries(WORDS, st.one_of(FLAT, VALUES), min_size=1, max_size=3))
def test_leaves_are_those_of_the_dictionary(config: dict[str, object]) -> None:
    assert dict(leaves(pprint.pformat(config))) == dict(flatten(config))


@given(st.text(" ab'\"{}[](),:\\\n1", max_size=60))
def test_any_text_is_taken(text: str) -> None:
    config = PrintedConfig()
    config.feed(text.encode())
    list(leaves(text))
