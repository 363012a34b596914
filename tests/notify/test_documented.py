"""Every test that the page about delivery names exists, its settings load, and its numbers are those of the code."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from grpo_watch.config.settings import load_settings
from grpo_watch.notify.episodes import TROUBLE_TRIES
from grpo_watch.notify.outbox import (
    FIRST_SECONDS,
    GIVE_UP_TRIES,
    LONGEST_ASKED_SECONDS,
    LONGEST_SECONDS,
    MOST_WAITING,
    SPLIT_TRIES,
    wait_before,
)
from grpo_watch.notify.receiver import DeliveryOutcome, DeliveryResult
from grpo_watch.notify.receivers.http import FIXABLE_TRIES, MAX_RETRY_AFTER, HttpAccess, HttpEndpoint, outcome_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "delivery.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE + SECURITY)

ANSWERS = (ROOT / "docs" / "notifications.md").read_text(encoding="utf-8").partition("## Answers and retries\n")[2]
WORDS = {5: "five", 10: "ten"}
HEADS = ("| guarantee |", "| fault |", "| property |", "| run |", "| `tests.model.")


@pytest.mark.parametrize(
    ("text", "least"), [(PAGE, 45), (SECURITY.partition("## Tests\n")[2], 20)], ids=["delivery", "security"]
)
def test_the_page_names_tests(text: str, least: int) -> None:
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(HEADS)]
    assert len(rows) >= least
    assert all("`tests/" in row for row in rows)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_each_promise_has_its_test(file: str, name: str) -> None:
    assert re.search(rf"^(def {name}\(|{name} = )", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_what_the_page_about_security_names_is_there() -> None:
    named = re.findall(r"`((?:tests|docs|deploy)/[\w/.-]*)`", SECURITY)
    assert named
    assert [place for place in named if not (ROOT / place).exists()] == []


def documented() -> tuple[dict[int, tuple[DeliveryResult, int | None]], tuple[DeliveryResult, int | None]]:
    """What the table of answers says of each status, and of no answer; exact numbers go before classes (``4xx``)."""
    rows = re.findall(r"^\| (.+) \| (delivered|tried again|given up)\b[^|]*\| ([\d,]*)[^|]*\|$", ANSWERS, re.MULTILINE)
    classes, exact, silence = (
        dict[int, tuple[DeliveryResult, int | None]](),
        dict[int, tuple[DeliveryResult, int | None]](),
        None,
    )
    words = {
        "delivered": DeliveryResult.DELIVERED,
        "tried again": DeliveryResult.RETRY,
        "given up": DeliveryResult.REFUSED,
    }
    for answers, what, tries in rows:
        meaning = words[what], int(tries.replace(",", "")) if tries else None
        classes |= {int(each): meaning for each in re.findall(r"\b([2-5])xx\b", answers)}
        exact |= {int(each): meaning for each in re.findall(r"\b([2-5]\d\d)\b", answers)}
        silence = meaning if "no answer" in answers else silence
    assert silence is not None
    return {status: exact.get(status, classes[status // 100]) for status in range(200, 600)}, silence


def most_tries(outcome: DeliveryOutcome) -> int | None:
    """Attempts after which a message with this answer is given up."""
    if outcome.result is DeliveryResult.RETRY:
        return min(GIVE_UP_TRIES, outcome.most_tries or GIVE_UP_TRIES)
    return 1 if outcome.result is DeliveryResult.REFUSED else None


def test_the_table_of_answers_is_what_the_code_does() -> None:
    """Each status by itself, and a receiver that is not there."""
    said, silence = documented()
    done = {status: outcome_of(status) for status in said}
    assert {status: (one.result, most_tries(one)) for status, one in done.items()} == said
    with socket.socket() as silent:  # its port is taken, so that nobody else listens there, and refuses
        silent.bind(("127.0.0.1", 0))
        outcome = HttpEndpoint(HttpAccess({}, None), lambda: 0.0).send(
            "POST", f"http://127.0.0.1:{silent.getsockname()[1]}/"
        )
    assert (outcome.result, most_tries(outcome)) == silence


def test_the_waits_and_bounds_that_are_reported() -> None:
    """Of both pages; the numbers are those of the code."""
    assert (FIRST_SECONDS, LONGEST_SECONDS) == (1.0, 60.0)
    assert "after 1 s, then twice as long each time, up to once a minute" in ANSWERS
    assert "at most 1 s, then doubling up to a minute, half of it random" in PAGE
    assert [wait_before(tries, lambda: 0.0) for tries in (1, 2, 3, 7, 99)] == [0.5, 1.0, 2.0, 30.0, 30.0]
    assert f"`Retry-After` is respected, up to {min(LONGEST_ASKED_SECONDS, MAX_RETRY_AFTER) / 60:.0f} minutes" in PAGE
    assert f"after {GIVE_UP_TRIES:,} attempts (about three days), or after {FIXABLE_TRIES:,} (about a day)" in PAGE
    assert f"At most {MOST_WAITING:,} messages wait" in PAGE
    assert f"after every {WORDS[SPLIT_TRIES]} attempts" in PAGE
    assert f"After {WORDS[TROUBLE_TRIES]} failed attempts" in PAGE


def test_the_example_of_settings_loads(tmp_path: Path) -> None:
    file = tmp_path / "grpo-watch.yaml"
    file.write_text(PAGE.partition("```yaml\n")[2].partition("```")[0])
    settings = load_settings(config=file, environ={}).settings
    assert settings.mute[0].reason == "known"
