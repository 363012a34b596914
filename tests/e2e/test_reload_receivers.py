"""SIGHUP brings the real daemon other receivers; what does not load changes nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.bundles import unpack
from tests.support.process import until, watching
from tests.support.receiving import Receiving, receiving, secret_file

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
KL = "kl-stuck-at-zero"
RELOADED = "grpo_watch_config_last_reload_successful"


def reported(hook: Receiving) -> list[tuple[str, str]]:
    documents = [json.loads(sent.body) for sent in list(hook.sent)]
    return [(document["status"], document["id"]) for document in documents if document["rule"] == KL]


@pytest.mark.slow
def test_receivers_are_added_changed_and_removed_while_it_runs(tmp_path: Path) -> None:
    """Each gets what fires once; the answer of one that was removed is not waited for; a broken secret is reported."""
    run = unpack(FROZEN, tmp_path / "runs")
    for console in run.rglob("*.log"):
        console.unlink()
    log = next(run.rglob("logging.jsonl"))
    rows = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(rows[:3]))
    settings = tmp_path / "grpo-watch.yaml"
    with receiving() as first, receiving() as second, receiving() as third:

        def sinks(*lines: str) -> None:
            settings.write_text(
                "sinks:\n" + "".join(f"  - {{type: webhook, only_rules: [{KL}], {it}}}\n" for it in lines)
            )

        stays = f"name: stays, url: '{first.url}'"
        sinks(stays)
        with watching(run, state=tmp_path / "state", options=("--config", str(settings))) as daemon:
            until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)
            with log.open("ab") as file:
                file.write(b"".join(rows[3:40]))
            until(lambda: reported(first), daemon.child)

            sinks(stays, f"name: added, url: '{second.url}', secret_file: {tmp_path / 'hmac'}")
            daemon.child.send_signal(signal.SIGHUP)  # the secret is not there
            until(lambda: f"{RELOADED} 0.0" in daemon.get("/metrics"), daemon.child)
            assert f"{tmp_path / 'hmac'}: the secret can't be read" in daemon.said()
            assert 'sink="added"' not in daemon.get("/metrics")

            secret_file(tmp_path / "hmac", "geheim")
            daemon.child.send_signal(signal.SIGHUP)
            until(lambda: reported(second), daemon.child)
            until(lambda: f"{RELOADED} 1.0" in daemon.get("/metrics"), daemon.child)

            sinks(f"name: added, url: '{third.url}'", "name: gone, url: 'http://receiver.invalid/'")
            daemon.child.send_signal(signal.SIGHUP)
            until(lambda: 'grpo_watch_delivery_queue_length{sink="gone"} 1.0' in daemon.get("/metrics"), daemon.child)
            assert 'grpo_watch_delivery_queue_length{sink="stays"}' not in daemon.get("/metrics")

            sinks(stays, f"name: added, url: '{third.url}'")
            daemon.child.send_signal(signal.SIGHUP)
            until(lambda: "messages are queued for a receiver that is not configured" in daemon.said(), daemon.child)
            daemon.child.send_signal(signal.SIGTERM)
            assert daemon.ends() == 0
        (fired,) = reported(first)
        assert fired[0] == "firing"
        assert reported(second) == [fired]
        assert reported(third) == []
        assert "only after a restart" not in daemon.said()
        assert daemon.said().count(f"watching {FROZEN} ") == 1
        assert "geheim" not in daemon.said()


@pytest.mark.slow
def test_a_mute_in_the_settings_ends_with_a_reload(tmp_path: Path) -> None:
    """What still fires is sent then; what an earlier version kept in ``silences.json`` has no effect."""
    run = unpack(FROZEN, tmp_path / "runs")
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "silences.json").write_text('{"rule": 1}')
    settings = tmp_path / "grpo-watch.yaml"
    with receiving() as hook:
        sinks = f"notify_backlog: all\nsinks: [{{type: webhook, url: '{hook.url}'}}]\n"
        settings.write_text(f"{sinks}mute: [{{run: '*', rule: 'kl-*', reason: known}}]\n")
        with watching(run, state=tmp_path / "state", options=("--config", str(settings))) as daemon:
            until(lambda: f'grpo_alert_firing{{rule="{KL}"' in daemon.get("/metrics"), daemon.child)
            until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)
            assert reported(hook) == []
            settings.write_text(sinks)
            daemon.child.send_signal(signal.SIGHUP)
            until(lambda: reported(hook), daemon.child)
            assert daemon.child.poll() is None
