"""docs/channels.md sentence by sentence: each names the tests that hold it, and its numbers are those of the code."""

from __future__ import annotations

import re

import pytest

from grpo_watch.engine.metric_names import MAX_FUNCTIONS
from grpo_watch.engine.records import ChannelKind
from grpo_watch.runtime.channel_agreement import ROUNDING
from grpo_watch.runtime.daemon import POLL_SECONDS
from grpo_watch.sources import files, packed
from grpo_watch.sources.discovery import leftover
from grpo_watch.sources.logs import rotated
from tests.support.claims import is_defined, rows, sentences
from tests.support.markdown import ROOT

PAGE = (ROOT / "docs" / "channels.md").read_text(encoding="utf-8")
HISTORIES = "model/test_tail_machine.py::TestTail"
"""Random histories of a log: this operation is one of them."""
KILLS = "model/test_kill_soak.py::test_killed_at_random_moments_nothing_is_lost_or_doubled"

CLAIMS = {
    "the outermost folder that contains its channels": [
        "sources/test_discover.py::test_trl_run",
        "sources/test_discover.py::test_a_folder_of_folders_of_runs",
    ],
    "belong to their parent folder": [
        "sources/test_discover.py::test_naming_a_part_of_a_run",
        "sources/test_discover.py::test_a_resumed_ms_swift_run_has_segments",
        "sources/test_layouts.py::test_logs_and_checkpoints_in_different_folders",
    ],
    "Several folders with a console log each": [
        "sources/test_layouts.py::test_experiments_side_by_side_stay_apart",
        "sources/test_layouts.py::test_hydra_jobs_of_one_day_are_runs",
    ],
    "picked up without a restart": [
        "runtime/test_daemon.py::test_runs_and_channels_that_appear_later",
        "runtime/test_run_reader.py::test_a_channel_is_opened_and_announced_once",
    ],
    "Rows are merged by attempt and step": [
        "runtime/test_merged_channels.py::test_channels_with_the_same_steps_are_counted_once",
        "runtime/test_merged_channels.py::test_the_beginning_of_a_resumed_attempt_that_only_one_channel_has",
    ],
    "the first of these decides": [
        "runtime/test_merged_channels.py::test_a_merge_gives_every_step_from_the_best_channel_that_has_it",
        "docs/test_channels_claims.py::test_the_order_of_channels_is_that_of_the_code",
    ],
    "the others add metrics that it lacks": [
        "runtime/test_assembler.py::test_the_best_opened_channel_gives_the_rows_and_the_other_only_what_it_lacks"
    ],
    "by more than rounding or 0.1 %": [
        "runtime/test_assembler.py::test_what_is_a_contradiction",
        "runtime/test_merged_channels.py::test_contradicting_values_are_counted_as_conflicts",
        "cli/test_sources.py::test_contradicting_channels_are_reported_and_are_no_finding",
    ],
    "at most of their common steps fills no steps": [
        "runtime/test_merged_channels.py::test_another_jobs_rows_are_not_appended"
    ],
    "A channel may name 512 reward functions": [
        "frameworks/test_resolver.py::test_a_new_name_on_every_row_is_a_reward_function_only_so_often",
        "runtime/test_assembler.py::test_dumps_name_only_so_many_reward_functions",
        "sources/completions/test_summarise.py::test_a_table_of_ten_thousand_columns_has_only_so_many_reward_functions",
    ],
    "Further names, for example": [
        "model/test_memory.py::test_names_that_no_other_row_has_take_no_more_memory_in_the_end",
    ],
    "once three consistent ones were printed": ["sources/test_own_lines.py::test_two_rows_are_no_log"],
    "Without a step they are counted": [
        "sources/test_own_lines.py::test_rows_without_a_step_are_counted_and_sums_divided_by_their_count",
        "sources/test_own_lines.py::test_rows_without_a_reward_count_where_they_are_of_training_with_one",
    ],
    "`make soak` compares the reader with a model": [HISTORIES],
    "that permit no loss, none was lost or doubled": [HISTORIES],
    "another rank's log is a separate channel": [
        "sources/test_layouts.py::test_numbered_logs_of_ranks_are_channels_of_their_own",
        "sources/test_layouts.py::test_a_rotated_log_is_one_channel",
        "sources/test_line_counts.py::test_a_log_rotated_a_moment_ago_is_one_channel_for_all",
        "sources/test_tail.py::test_a_first_look_begins_with_what_was_rotated_away",
    ],
    "are polled five times a second": [
        "runtime/test_rotated_parts.py::test_a_folder_on_a_network_file_system_is_polled_only"
    ],
    "name up to five files": [
        "sources/test_leftover.py::test_five_are_named_and_a_file_is_read_once",
        "sources/test_leftover.py::test_sources_and_check_say_it",
        "sources/test_leftover.py::test_the_daemon_reports_it_on_its_page_and_once_in_its_log",
    ],
    "no metric row was understood": [
        "sources/test_leftover.py::test_a_log_in_an_unknown_notation_is_named_with_its_first_row"
    ],
    "the first that looks like one": [
        "sources/test_leftover.py::test_a_log_in_an_unknown_notation_is_named_with_its_first_row"
    ],
    "`compressed;": ["sources/test_leftover.py::test_zstd_comes_with_the_command_that_reads_it"],
    "zstdcat FILE": ["sources/test_leftover.py::test_zstd_comes_with_the_command_that_reads_it"],
    "map them with": ["cli/test_columns.py::test_a_step_and_a_metric_of_a_wandb_log"],
}
"""What each sentence claims, by some of its words, and the tests that fail where it does not hold."""

ROWS = {
    "console logs (`.log`, `.txt`, `.out`, `.err`)": [
        "e2e/test_channels.py::test_each_channel_alone_gives_the_labelled_verdict",
        "sources/test_own_lines.py::test_forms_of_one_line",
        "sources/test_own_lines.py::test_forms_of_several_lines",
        "sources/test_printed_columns.py::test_rows_of_a_printed_table",
        "sources/test_bar_rows.py::test_one_row_for_each_iteration",
        "sources/test_tracebacks.py::test_a_file_that_names_the_end_of_a_job_is_its_console",
        "sources/completions/test_printed_table.py::test_groups_are_the_rows_of_a_prompt",
    ],
    "`.jsonl`": [
        "e2e/test_channels.py::test_each_channel_alone_gives_the_labelled_verdict",
        "sources/test_json_document.py::test_rows_by_step_and_rows_with_their_metrics_inside",
    ],
    "`.json`": [
        "sources/test_json_document.py::test_arrays_by_metric",
        "sources/test_json_document.py::test_arrays_of_rows",
        "sources/test_json_document.py::test_rows_by_step_and_rows_with_their_metrics_inside",
        "runtime/test_merged_channels.py::test_a_state_file_of_every_tenth_row_beside_json_lines_of_every_row",
    ],
    "`.csv`, `.tsv`": [
        "sources/test_text_table.py::test_a_csv_of_a_notebook",
        "sources/test_table_arms.py::test_wandbs_export_of_a_chart",
        "sources/test_text_table.py::test_the_one_metric_of_a_tensorboard_export_is_named_by_its_file",
        "runtime/test_merged_channels.py::test_one_file_for_each_metric_is_one_run",
    ],
    "`.ipynb`, `.html`": [
        "sources/test_notebook.py::test_a_table_gives_rows_the_framework_and_the_end",
        "sources/test_notebook.py::test_a_data_frame_counts_where_nothing_else_shows_rows",
        "sources/test_notebook.py::test_printed_rows_of_the_cell_with_a_reward",
        "sources/test_notebook.py::test_an_error_counts_where_it_ends_training",
        "sources/test_notebook.py::test_a_trial_before_the_run_is_an_attempt_of_its_own",
        "sources/test_notebook.py::test_several_tables_in_one_html_file",
    ],
    "`.md`": [
        "sources/test_printed_columns.py::test_a_model_card_with_a_table_of_rewards_is_a_run",
        "sources/test_printed_columns.py::test_other_tables_give_no_row",
    ],
    "`.gz`, `.xz`, UTF-16": [
        "sources/test_packed.py::test_a_packed_log_is_found_and_read",
        "sources/test_packed.py::test_a_log_that_grows_gives_each_row_once_also_to_a_new_reader",
        "sources/test_packed.py::test_one_that_is_too_large_for_memory_is_refused",
    ],
    "the file grows; the daemon is killed": [HISTORIES, KILLS],
    "rotated by renaming": ["sources/test_tail.py::test_two_rotations_between_two_polls_lose_nothing", HISTORIES],
    "rotated while the daemon is down": [
        "sources/test_tail.py::test_a_rotation_while_no_reader_runs_loses_nothing",
        "runtime/test_rotation.py::test_a_rotation_while_the_daemon_is_down",
    ],
    "the job keeps writing to the old file": [
        "sources/test_tail.py::test_a_writer_that_opens_its_new_log_late_is_read_to_the_end",
        HISTORIES,
    ],
    "replaced by a longer copy (rsync)": [
        "sources/test_tail.py::test_a_synchronised_copy_goes_on_where_the_last_one_ended",
        "sources/test_tail.py::test_a_grown_copy_that_is_rotated_away_between_two_polls_loses_nothing",
        "sources/test_tail.py::test_a_grown_copy_that_was_rotated_away_is_read_before_its_successor_has_content",
        "sources/test_tail.py::test_a_stale_handle_repeats_nothing",
    ],
    "deleted and recreated": ["sources/test_tail.py::test_a_vanished_file_may_come_back", HISTORIES],
    "copytruncate": [
        "sources/test_tail.py::test_what_was_written_before_a_copytruncate_is_read_from_the_copy",
        "e2e/test_faults.py::test_a_console_with_a_hole_is_read_on_after_a_kill",
        HISTORIES,
    ],
    "truncated in place": ["sources/test_tail.py::test_truncation_starts_over", HISTORIES],
    "truncated and regrown past the old position": [
        "sources/test_tail.py::test_a_file_that_grew_again_past_the_old_offset_is_noticed_by_its_head",
        "sources/test_tail.py::test_a_file_with_the_same_banner_is_noticed_by_the_bytes_before_the_offset",
        "sources/test_tail.py::test_the_bound_of_telling_a_rewritten_file",
    ],
    "shortened": [
        "sources/test_tail.py::test_a_file_that_was_cut_back_is_read_again",
        "runtime/test_attempts.py::test_two_rows_going_on_from_a_lower_step_are_a_new_attempt",
    ],
    "replaced twice between polls without numbered copies": [
        HISTORIES,
        "sources/test_missing.py::test_rows_that_may_be_lost_are_counted",
    ],
    "a symlink out of the run's folder": [
        "sources/test_tail.py::test_a_link_out_of_the_run_folder_is_refused_and_named"
    ],
    "the run's folder disappears": [
        "runtime/test_daemon.py::test_a_run_that_vanishes_is_reported_as_no_longer_watched"
    ],
    "a line of 1 GB": ["sources/test_tail.py::test_a_line_of_200_mb_is_refused_without_being_held"],
    "20 runs whose mount is lost": [
        "model/test_scale.py::test_a_mount_that_is_lost_and_comes_back_gives_each_row_once"
    ],
    "two daemons over one folder": ["model/test_scale.py::test_two_daemons_with_states_of_their_own_read_one_folder"],
    "14,999 other files": ["sources/test_discover.py::test_the_walk_is_bounded"],
    "1,000,000 other files": ["sources/test_discover.py::test_the_walk_is_bounded"],
    "a rotated file is compressed (`train.log.1.gz`)": [
        HISTORIES,
        "sources/test_packed.py::test_a_rotated_part_is_no_log_of_its_own",
    ],
}
"""The tests of each row of a table, by the beginning of its first cell."""
NO_CLAIMS = (
    "Beside the real daemon",
    "Watch one file instead of the folder",
    "Measured on",
    "was read as the table says",
)
"""Advice, and figures of a measurement."""


@pytest.mark.parametrize("sentence", list(sentences(PAGE)))
def test_each_sentence_names_its_tests(sentence: str) -> None:
    assert [words for words in (*CLAIMS, *NO_CLAIMS) if words in sentence], "no test holds this"


@pytest.mark.parametrize("cells", list(rows(PAGE)), ids=lambda cells: cells[0])
def test_each_row_names_its_tests(cells: list[str]) -> None:
    assert [words for words in ROWS if cells[0].startswith(words)], "no test holds this"


def test_each_claim_is_on_the_page() -> None:
    text, firsts = "\n".join(sentences(PAGE)), [cells[0] for cells in rows(PAGE)]
    assert [words for words in (*CLAIMS, *NO_CLAIMS) if words not in text] == []
    assert [words for words in ROWS if not any(first.startswith(words) for first in firsts)] == []


@pytest.mark.parametrize("test", sorted({test for tests in (*CLAIMS.values(), *ROWS.values()) for test in tests}))
def test_each_test_is_defined(test: str) -> None:
    assert is_defined(test)


def test_the_order_of_channels_is_that_of_the_code() -> None:
    named = {
        "the callback": ChannelKind.CALLBACK,
        "JSON lines": ChannelKind.JSONL,
        "TensorBoard": ChannelKind.TFEVENTS,
        "wandb": ChannelKind.WANDB,
        "trackio": ChannelKind.TRACKIO,
        "console": ChannelKind.CONSOLE,
        "the Trainer's state file": ChannelKind.TRAINER_STATE,
    }
    (order,) = re.findall(r"the first of these decides: ([^;]+);", " ".join(PAGE.split()))
    assert [named[name] for name in order.split(", ")] == sorted(ChannelKind)


@pytest.mark.parametrize(
    "written",
    [
        f"by more than rounding or {ROUNDING * 100:g} %",
        f"up to {packed.LARGEST >> 20} MiB",
        f"the first {files.HEAD} bytes and the last {files.BEFORE} bytes read",
        f"polled {({0.2: 'five'})[POLL_SECONDS]} times a second",
        f"may name {MAX_FUNCTIONS} reward functions",
        f"name up to {({5: 'five'})[leftover.MOST_REPORTED]} files",
        f"or if it is {({60.0: 'a minute'})[rotated.FINISHED_SECONDS]} older",
    ],
)
def test_numbers_are_those_of_the_code(written: str) -> None:
    assert written in " ".join(PAGE.split())
