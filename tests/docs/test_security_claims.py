"""SECURITY.md sentence by sentence: each names what holds it, and its numbers are those of the code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_watch.engine import expression
from grpo_watch.notify.receivers import http_client
from grpo_watch.runtime import isolation
from grpo_watch.sources.completions import text_reduction
from grpo_watch.sources.settings import plain_yaml
from grpo_watch.sources.trackers.wandb_api import process
from grpo_watch.web import events, limits, listener, lockout, passwords
from tests.support.claims import is_defined, rows, sentences
from tests.support.markdown import ROOT

PAGE, _, TABLE = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Tests\n")

CLAIMS = {
    "prompts and longer texts appear on the page only": [
        "e2e/test_privacy.py::test_one_excerpt_and_no_more",
        "e2e/test_privacy.py::test_texts_that_the_table_of_completions_asks_for",
    ],
    "`/metrics` holds names of runs": [
        "e2e/test_privacy.py::test_one_excerpt_and_no_more",
        "notify/test_exposition.py::test_summaries_are_bounded",
    ],
    "only loopback clients are served": ["web/test_app.py::test_people_are_answered_on_the_machine_itself_only"],
    "`Forwarded`, `Via`, `X-Real-IP`": ["web/test_access.py::test_what_comes_through_a_proxy_is_not_local"],
    "`Host` allow-list, no CORS": [
        "web/test_app.py::test_a_rebound_name_is_refused",
        "web/test_access.py::test_every_answer_has_the_security_headers_and_none_opens_to_other_sites",
        "web/test_page_browser.py::test_the_policy_stops_what_would_be_injected",
    ],
    "16 KB headers, no bodies, 128 connections": [
        "web/test_access.py::test_requests_are_bounded",
        "web/test_listener.py::test_no_more_than_the_promised_connections_are_open",
        "web/test_listener.py::test_an_address_with_few_connections_keeps_them",
        "web/test_access.py::test_connections_that_ask_nothing_are_ended",
        "web/test_listener.py::test_a_handshake_that_does_not_end_is_ended",
        "web/test_events.py::test_listeners_are_bounded_and_leave_room_for_others",
        "web/test_events.py::test_a_stream_ends_after_a_while",
    ],
    "after 10 wrong logins an address waits": ["web/test_access.py::test_guessing_is_stopped_for_a_while"],
    "credentials accepted before keep working": ["web/test_access.py::test_many_guesses_at_once_keep_no_one_out"],
    "nothing is executed or unpickled": ["sources/test_checkpoints.py::test_pickled_weights_are_never_loaded"],
    "only regular files under the run": [
        "sources/test_files.py::test_what_is_no_regular_file",
        "sources/test_files.py::test_links_inside_the_roots_are_followed",
    ],
    "sizes, depths and regular expressions are bounded": [
        "sources/test_hostile_yaml.py::test_it_is_refused",
        "test_expressions.py::test_steps_are_in_proportion_to_the_text",
        "sources/test_console.py::test_a_piece_of_megabytes_is_passed_over",
    ],
    "no file in a run can name a server": ["e2e/test_hostile_folder.py::test_no_server_that_a_folder_names_is_asked"],
    "processes that parse Parquet": [
        "runtime/test_rotated_parts.py::test_a_worker_takes_no_more_memory_than_is_good",
        "runtime/test_isolation.py::test_a_process_that_parses_dumps_no_core_and_holds_few_descriptors",
        "runtime/test_isolation.py::test_a_process_that_parses_reaches_no_server_of_this_machine",
    ],
    "escaped in every output": [
        "notify/test_hostile_texts.py::test_reports_hold_it_as_text",
        "web/test_page_browser.py::test_hostile_texts_do_nothing",
    ],
    "excerpts are redacted and at most 80 characters": [
        "e2e/test_privacy.py::test_one_excerpt_and_no_more",
        "e2e/test_privacy.py::test_no_excerpt_when_configured_so",
    ],
    "no redirects, 9 s and 64 KB per answer": [
        "notify/test_http.py::test_a_redirect_is_not_followed",
        "notify/test_http.py::test_an_answer_that_drips_ends_in_time",
        "notify/test_http.py::test_no_more_is_read_of_an_answer_than_its_beginning",
    ],
    "known error words": ["notify/test_http.py::test_only_a_known_word_of_an_answer_is_repeated"],
    "are ended above 512 MiB of memory": [
        "sources/wandb_api/test_hostile.py::test_an_answer_that_is_too_large_ends_the_client_and_no_more",
        "sources/wandb_api/test_hostile.py::test_a_table_that_is_larger_than_it_says_is_given_up",
        "sources/wandb_api/test_hostile.py::test_a_download_that_drips_ends",
    ],
    "no redirect receives the API key": [
        "sources/wandb_api/test_hostile.py::test_the_key_follows_no_redirect",
        "sources/wandb_api/test_hostile.py::test_no_redirect_leads_to_a_file",
    ],
    "secret files readable by everyone": ["config/test_settings.py::test_a_secret_that_everybody_can_read_is_refused"],
    "no secret appears in logs": ["e2e/test_secrets.py::test_planted_secrets_are_found_nowhere"],
    "answer under every `Host`": [
        "cli/test_http_listener.py::test_metrics_on_loopback_are_given_under_known_names_only"
    ],
    "Trackio's SQLite database is the one file": [
        "sources/test_files.py::test_what_a_run_holds_is_opened_in_one_place"
    ],
    "Tokens in a run's settings": ["e2e/test_secrets.py::test_planted_secrets_are_found_nowhere"],
    "The last lines of a crashed job": ["engine/test_credentials.py::test_credentials_are_taken_out"],
    "needs read access to the runs": ["e2e/test_sandbox.py::test_starts_answers_and_stops"],
    "no root, no capabilities": ["e2e/test_sandbox.py::test_starts_answers_and_stops"],
    "set these restrictions": [
        "deploy/test_container.py::test_it_is_nobody_and_builds_from_the_lock",
        "deploy/test_compose.py::test_every_service_is_closed_and_pinned",
        "deploy/test_kubernetes.py::test_the_watcher_is_a_closed_sidecar_that_reads_what_the_trainer_writes",
        "deploy/test_systemd.py::test_the_unit_is_closed",
    ],
    "with modes 0700 and 0600": ["store/test_state.py::test_only_its_owner_reads_the_state"],
    "Passwords are stored": ["web/test_access.py::test_password_lines"],
    "N 16,384": ["web/test_access.py::test_password_lines"],
    "`make release` builds": [
        "deploy/test_release.py::test_a_release_is_built_checked_and_summed",
        "deploy/test_release.py::test_a_wheel_that_another_build_makes_differently_is_no_release",
        "deploy/test_release.py::test_the_sums_are_signed",
    ],
    "`make audit`, part of CI": ["deploy/test_release.py::test_a_vulnerable_dependency_is_no_release"],
    "where the index can't be asked": ["deploy/test_release.py::test_an_audit_that_can_not_be_made_says_so_and_passes"],
}
"""What each sentence claims, by some of its words, and the tests that fail where it does not hold."""
NO_CLAIMS = (
    "Report a vulnerability",
    "Fixes go into",
    "**Trusted input:**",
    "Anyone who can write these",
    "which of them",
)
"""Requests, and what is left to the reader."""


def claims() -> Iterator[str]:
    """The sentences of the page, and what the last cell of each row of its table says."""
    yield from sentences(PAGE)
    for cells in rows(PAGE):
        yield from cells[-1].split("; ")


@pytest.mark.parametrize("sentence", list(claims()))
def test_each_sentence_names_its_tests(sentence: str) -> None:
    assert [words for words in (*CLAIMS, *NO_CLAIMS) if words in sentence], "no test holds this"


def test_each_claim_is_on_the_page() -> None:
    found = "\n".join(claims())
    assert [words for words in (*CLAIMS, *NO_CLAIMS) if words not in found] == []


@pytest.mark.parametrize("test", sorted({test for tests in CLAIMS.values() for test in tests}))
def test_each_test_is_there(test: str) -> None:
    assert is_defined(test)


@pytest.mark.parametrize(
    "written",
    [
        f"{limits.MAX_HEAD >> 10} KB headers",
        f"{listener.MAX_CONNECTIONS} connections",
        f"{listener.PATIENCE:g} s per request",
        f"{events.STREAMS} event streams of {({600.0: 'ten'})[events.LIFE_SECONDS]} minutes",
        f"after {lockout.FAILURES} wrong logins an address waits {({60.0: 'a minute'})[lockout.SECONDS]}",
        f"at most {isolation.FILES:,} descriptors",
        f"at most {text_reduction.EXCERPT} characters",
        f"{http_client.TOTAL_SECONDS:g} s and {http_client.MAX_ANSWER >> 10} KB per answer",
        f"{process.MOST_MEMORY >> 20} MiB of memory, {process.MOST_STORED >> 20} MiB of files or",
        f"of files or {process.PATIENCE:g} s",
        f"N {passwords.COST:,}, r {passwords.BLOCK}, p {passwords.PARALLEL}",
    ],
)
def test_numbers_are_those_of_the_code(written: str) -> None:
    assert written in " ".join(PAGE.split())


def test_depths_are_those_of_the_code() -> None:
    assert f"at most {plain_yaml.MAX_DEPTH} levels" in TABLE
    assert f"; {expression.MAX_DEPTH} levels" in TABLE
