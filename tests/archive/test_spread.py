"""Work spread over processes: all of it is done, whatever becomes of single pieces or processes."""

from __future__ import annotations

from pathlib import Path

from grpo_watch.children.pool import Answer, in_processes
from tests.archive.work import doubled, kills_always, kills_once


def results(answers: list[Answer]) -> dict[int, str]:
    assert len({answer.place for answer in answers}) == len(answers)
    return {answer.place: answer.error or answer.result.decode() for answer in answers}


def test_each_piece_has_one_answer_and_a_failure_stops_no_other() -> None:
    answers = list(in_processes(doubled, [1, 13, 3, 4, 5], 2))
    assert results(answers) == {0: "2", 1: "ValueError: unlucky", 2: "6", 3: "8", 4: "10"}


def test_what_a_killed_process_had_in_work_is_done_by_another(tmp_path: Path) -> None:
    pieces = [(tmp_path if number else tmp_path / "first", number) for number in range(4)]
    assert results(list(in_processes(kills_once, pieces, 2))) == {0: "0", 1: "2", 2: "4", 3: "6"}


def test_a_piece_that_kills_each_of_its_processes_gets_an_error_and_the_others_their_results() -> None:
    answered = results(list(in_processes(kills_always, [1, 7, 3], 2)))
    assert answered.pop(1) == "the process that read it was killed, twice (out of memory?)"
    assert answered == {0: "2", 2: "6"}
