"""wandb's own client against a server: what it asks, what comes back, and what its failures are taken for."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path

import pytest

from grpo_watch.errors import UsageError
from grpo_watch.frameworks.row_numbers import numbers
from grpo_watch.sources.trackers.wandb_api.client import WandbClient
from grpo_watch.sources.trackers.wandb_api.process import ClientProcess
from grpo_watch.sources.trackers.wandb_api.remote import RemoteError, RemotePlace, ServerTrouble, TableRef, parse_place
from tests.support.wandb_runs import PLACE, calls, metrics, table
from tests.support.wandb_server import KEY, Fault, ServedRun, WandbServer, served


def test_history_comes_by_pages_and_from_a_counter_on_unsampled(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1"))
    run.rows = calls(*(metrics(step) for step in range(2_400)))
    client.ask(WandbClient.details, PLACE)
    server.asked.clear()
    server.variables.clear()
    found, spent = client.ask(WandbClient.pieces, PLACE, 300, 5_000)
    assert [piece.order for piece in found.rows] == list(range(300, 2_400))
    assert (found.after, found.last) == (2_400, 2_399)
    pages = [asked for asked in server.variables if "minStep" in asked]
    assert [(page["minStep"], page["maxStep"]) for page in pages] == [(300, 1300), (1300, 2300), (2300, 2400)]
    assert "SampledHistoryPage" not in server.asked
    assert spent == len(server.asked)


def test_an_idle_run_costs_one_question(server: WandbServer, client: ClientProcess) -> None:
    server.add("ada/grpo", ServedRun("r1", rows=calls(metrics(1))))
    client.ask(WandbClient.details, PLACE)
    server.asked.clear()
    assert client.ask(WandbClient.pieces, PLACE, 1, 5_000)[1] == 1
    assert server.asked == ["RunHistoryKeys"]


def test_a_long_history_is_read_in_stretches_over_gaps(server: WandbServer, client: ClientProcess) -> None:
    server.add("ada/grpo", ServedRun("r1", rows=[{"_step": 0, "train/loss": 1.0}, {"_step": 9_000, "train/loss": 2.0}]))
    client.ask(WandbClient.details, PLACE)
    first, _ = client.ask(WandbClient.pieces, PLACE, 0, 5_000)
    second, _ = client.ask(WandbClient.pieces, PLACE, first.after, 5_000)
    assert ([p.order for p in first.rows], first.after) == ([0], 5_000)
    assert ([p.order for p in second.rows], second.after) == ([9_000], 9_001)


def test_values_as_the_server_writes_them(server: WandbServer, client: ClientProcess) -> None:
    row = metrics(7, **{"train/kl": None, "train/grad_norm": math.nan})
    row |= {"train/entropy": "NaN", "train/note": "text", "train/hist": {"_type": "histogram"}, "_runtime": 3.5}
    server.add("ada/grpo", ServedRun("r1", rows=calls(row)))
    piece = client.ask(WandbClient.pieces, PLACE, 0, 10)[0].rows[0]
    assert (piece.row["train/global_step"], piece.time) == (7, 1.795e9)
    values = numbers(piece.row)
    assert values["train/kl"] is None
    assert math.isnan(values["train/grad_norm"] or 0.0)
    assert math.isnan(values["train/entropy"] or 0.0)
    assert sorted(values) == ["train/entropy", "train/grad_norm", "train/kl", "train/loss", "train/reward"]


def test_texts_of_a_row_stay_with_the_client(server: WandbServer, client: ClientProcess) -> None:
    """What is no number and too long for one could be a completion, and megabytes."""
    row = metrics(7, **{"train/kl": 0.5}) | {"train/sample": "an answer " * 1_000, "train/nested": {"text": "answer"}}
    server.add("ada/grpo", ServedRun("r1", rows=calls(row | {"train/lr": "4.2e-05"})))
    (piece,) = client.ask(WandbClient.pieces, PLACE, 0, 10)[0].rows
    assert "answer" not in repr(piece)
    assert piece.row["train/lr"] == "4.2e-05"


def test_configuration_keeps_settings_and_no_secret(server: WandbServer, client: ClientProcess) -> None:
    config = {
        "beta": 0.04,
        "num_generations": 8,
        "max_steps": -1,
        "hub_token": "hf_abcdefghijklmnop",
        "vllm_server_base_url": "http://user:pass@host",
        "hidden_size": 64,
        "peft_config": {"default": {"peft_type": "LORA", "init_lora_weights": True, "base_model_name_or_path": "q"}},
    }
    server.add("ada/grpo", ServedRun("r1", config=config))
    details, _ = client.ask(WandbClient.details, PLACE)
    assert details.config is not None
    settings = {name: setting.value for name, setting in details.config.settings.items()}
    assert settings == {
        "beta": 0.04,
        "num_generations": 8,
        "adapter": True,
        "peft_type": "LORA",
        "adapter_init": "default",
    }
    assert details.info == ("r1", "brave-fox-1", "running", 1_795_248_000.0, 1_795_248_000.0)


def test_a_project_lists_its_newest_runs_over_pages(server: WandbServer, client: ClientProcess) -> None:
    for hour in range(12):
        server.add("ada/grpo", ServedRun(f"r{hour}", created=f"2026-11-21T{hour:02d}:00:00Z"))
    listed, _ = client.ask(WandbClient.runs, RemotePlace("ada", "grpo"), 5)
    assert [info.id for info in listed] == ["r11", "r10", "r9", "r8", "r7"]


def test_a_table_comes_as_groups_without_texts(server: WandbServer, client: ClientProcess) -> None:
    run = server.add("ada/grpo", ServedRun("r1"))
    columns = {
        "step": ["3"] * 4,
        "prompt": ["p", "p", "q", "q"],
        "completion": ["SECRET a", "SECRET a", "b", "c"],
        "fn": [1.0, 1.0, 0.0, math.nan],
        "advantage": [0.0, 0.0, 0.5, -0.5],
    }
    ref = table(run, 5, columns)
    (summary,), spent = client.ask(WandbClient.tables, PLACE, [TableRef(ref["path"], ref["size"])], 2, False)
    assert not isinstance(summary, str)
    assert spent == 1
    assert summary.step == 3
    assert [group.pattern for group in summary.groups] == [(0, 0), (0, 1)]
    assert summary.groups[1].rewards == {"fn": (0.0, None), "advantage": (0.5, -0.5)}
    assert "SECRET" not in repr(summary)


def test_a_table_that_claims_to_be_huge_is_not_fetched(server: WandbServer, client: ClientProcess) -> None:
    server.add("ada/grpo", ServedRun("r1"))
    ref = TableRef("media/table/completions_0_x.table.json", 1 << 40)
    (lost,), _ = client.ask(WandbClient.tables, PLACE, [ref], 2, False)
    assert "more than are read" in str(lost)
    assert "GET" not in server.asked


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [
        (Fault(401, json.dumps({"errors": [{"message": "user is not logged in"}]}).encode()), ServerTrouble.REFUSED),
        (Fault(403, b'{"errors": [{"message": "permission denied"}]}'), ServerTrouble.REFUSED),
        (Fault(404, b"{}"), ServerTrouble.GONE),
        (Fault(429, b'{"error": "rate limit exceeded"}', {"Retry-After": "0"}), ServerTrouble.LIMITED),
        (Fault(500, b"<html>boom</html>"), ServerTrouble.FAILED),
        (Fault(200, b"<html>a proxy's page</html>"), ServerTrouble.FAILED),
        (Fault(200, b'{"data": {"project": {"run": {"name": 5}}}}'), ServerTrouble.FAILED),
    ],
    ids=["expired key", "forbidden", "not found", "rate limit", "server error", "no json", "odd json"],
)
def test_failures_are_distinguished(
    server: WandbServer, client: ClientProcess, fault: Fault, trouble: ServerTrouble
) -> None:
    server.add("ada/grpo", ServedRun("r1", rows=calls(metrics(1))))
    client.ask(WandbClient.details, PLACE)  # a new client asks once whether the key is right
    server.standing = fault
    with pytest.raises(RemoteError) as caught:
        client.ask(WandbClient.details, RemotePlace("ada", "grpo", "r1"))
    assert caught.value.trouble is trouble
    assert "\n" not in str(caught.value)
    server.standing = None
    assert client.ask(WandbClient.details, PLACE)[0].info.id == "r1", "the same client goes on"


@pytest.mark.slow
def test_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for as long as the client was set to wait: shorter here than by the other tests' client."""
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with served() as server:
        server.add("ada/grpo", ServedRun("r1"))
        client = ClientProcess(server.url, http_seconds=(5, 20))
        client.ask(WandbClient.details, PLACE)
        server.standing = Fault(hang=True)
        with pytest.raises(RemoteError) as caught:
            client.ask(WandbClient.details, PLACE)
        server.standing = None
        server.released.set()
        assert client.ask(WandbClient.details, PLACE)[0].info.id == "r1", "the same client goes on"
        client.close()
    assert caught.value.trouble is ServerTrouble.TIMEOUT


def test_a_deleted_run_and_an_unknown_project(server: WandbServer, client: ClientProcess) -> None:
    server.add("ada/grpo", ServedRun("other"))
    for question in (
        lambda: client.ask(WandbClient.details, RemotePlace("ada", "grpo", "nix")),
        lambda: client.ask(WandbClient.runs, RemotePlace("ada", "nix"), 5),
    ):
        with pytest.raises(RemoteError) as caught:
            question()
        assert caught.value.trouble is ServerTrouble.GONE


@pytest.mark.slow
def test_without_a_key_nothing_is_asked_and_no_one_is_prompted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with served() as server:
        client = ClientProcess(server.url, http_seconds=(20, 60))
        with pytest.raises(RemoteError, match="WANDB_API_KEY") as caught:
            client.ask(WandbClient.details, PLACE)
        client.close()
        assert caught.value.trouble is ServerTrouble.NO_KEY
        assert server.asked == []


@pytest.mark.slow
def test_key_from_netrc_and_no_settings_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as server, served() as thief:
        netrc = tmp_path / "netrc"
        netrc.write_text(f"machine 127.0.0.1:{server.url.rsplit(':', 1)[1]}\n login user\n password {KEY}\n")
        netrc.chmod(0o600)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(scratch))
        planted = tmp_path / "run" / "wandb"
        planted.mkdir(parents=True)
        (planted / "settings").write_text(f"[default]\nbase_url = {thief.url}\n")
        monkeypatch.chdir(planted.parent)
        monkeypatch.delenv("WANDB_API_KEY", raising=False)
        monkeypatch.setenv("NETRC", str(netrc))
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_DIR", str(planted.parent))
        server.add("ada/grpo", ServedRun("r1"))
        client = ClientProcess(http_seconds=(20, 60))
        before = sorted(planted.parent.rglob("*"))
        assert client.ask(WandbClient.details, PLACE)[0].info.id == "r1"
        client.interrupt()
        client.close()
        assert list(scratch.iterdir()) == [], "nor left anywhere else"
        assert thief.asked == []
        assert sorted(planted.parent.rglob("*")) == before, "nothing is written into a run's folder"
        assert Path.cwd() == planted.parent
        assert "WANDB_SERVICE" not in os.environ


@pytest.mark.slow
def test_a_client_that_dies_is_replaced(server: WandbServer, client: ClientProcess) -> None:
    server.add("ada/grpo", ServedRun("r1"))
    client.ask(WandbClient.details, PLACE)
    client.interrupt()
    with pytest.raises(RemoteError) as caught:
        client.ask(WandbClient.details, PLACE)
    assert caught.value.trouble is ServerTrouble.FAILED
    assert client.ask(WandbClient.details, PLACE)[0].info.id == "r1"


@pytest.mark.slow
def test_a_refused_key_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with served() as server:
        server.standing = Fault(401, json.dumps({"errors": [{"message": f"bad key {KEY}"}]}).encode())
        client = ClientProcess(server.url, http_seconds=(20, 60))
        with pytest.raises(RemoteError) as caught:
            client.ask(WandbClient.details, PLACE)
        client.close()
    assert caught.value.trouble is ServerTrouble.REFUSED
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value)


@pytest.mark.parametrize("text", ["wandb://e", "wandb://e/p/r/x", "wandb://e//r", "wandb://e/p?x=1", "http://e/p"])
def test_an_address_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ENTITY/PROJECT"):
        parse_place(text)


def test_addresses() -> None:
    assert parse_place("wandb://my-team/grpo 2".replace(" ", "_")) == RemotePlace("my-team", "grpo_2")
    assert str(parse_place("wandb://e/p/abc123/")) == "wandb://e/p/abc123"
