"""Planted secrets: no log, error, metric, page, state file or message of the real daemon holds one of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.bundles import unpack
from tests.support.process import PROGRAM, until, watching
from tests.support.receiving import Answer, Receiving, receiving, secret_file

FROZEN = "ms-swift-4.6.0-04b-frozen-optnoop-full"
SECRETS = {
    name: f"planted-{name}-5e1f"
    for name in (
        "slack",
        "hmac",
        "header",
        "user",
        "query",
        "gateway",
        "alerts",
        "apprise",
        "ping",
        "token",
        "args",
        "pager",
    )
}
SECRETS["word"] = "correcthorsebatterystaple"
"""A secret that is one plain word, as error words are; a receiver repeats it alone."""
ECHO = b"you sent " + " ".join(SECRETS.values()).encode()


@pytest.fixture
def servers() -> Iterator[dict[str, Receiving]]:
    """One per receiver; three refuse, and repeat every secret in what they say."""
    refuses = {
        "webhook": Answer(403, {"X-Echo": ECHO.decode()}, ECHO),
        "gateway": Answer(500, body=ECHO),
        "echo": Answer(403, body=SECRETS["word"].encode()),
    }
    with ExitStack() as stack:
        names = ("slack", "webhook", "gateway", "alerts", "apprise", "ping", "echo", "pager")
        yield {name: stack.enter_context(receiving(refuses.get(name, Answer()))) for name in names}


def configured(folder: Path, servers: dict[str, Receiving]) -> Path:
    """Every receiver that takes a secret, each with secrets of its own."""

    def kept(name: str, text: str) -> str:
        return str(secret_file(folder / f"{name}.secret", text))

    at = {name: server.url.removeprefix("http://") for name, server in servers.items()}
    sinks = [
        {"type": "slack", "webhook_url_file": kept("slack", f"http://{at['slack']}/services/{SECRETS['slack']}")},
        {
            "type": "webhook",
            "url": f"http://me:{SECRETS['user']}@{at['webhook']}/hook?key={SECRETS['query']}",
            "secret_file": kept("hmac", SECRETS["hmac"]),
            "header_files": {"X-Token": kept("header", SECRETS["header"])},
        },
        {
            "type": "webhook",
            "url": f"http://{at['echo']}/",
            "header_files": {"X-Token": kept("word", SECRETS["word"])},
        },
        {
            "type": "pushgateway",
            "url": f"http://{at['gateway']}",
            "header_files": {"Authorization": kept("gateway", f"Bearer {SECRETS['gateway']}")},
        },
        {
            "type": "alertmanager",
            "url": f"http://{at['alerts']}",
            "header_files": {"Authorization": kept("alerts", f"Bearer {SECRETS['alerts']}")},
        },
        {"type": "apprise", "url_file": kept("apprise", f"json://me:{SECRETS['apprise']}@{at['apprise']}/x")},
        {
            "type": "pagerduty",
            "routing_key_file": kept("pager", SECRETS["pager"]),
            "url": f"http://{at['pager']}/v2/enqueue",
        },
        {"type": "heartbeat", "url_file": kept("ping", f"http://{at['ping']}/ping/{SECRETS['ping']}")},
    ]
    web = {"token_file": kept("token", SECRETS["token"])}
    config = folder / "grpo-watch.yaml"
    config.write_text(json.dumps({"sinks": sinks, "web": web, "notify_backlog": "all"}))  # JSON is YAML
    return config


def leaks(places: dict[str, bytes]) -> list[tuple[str, str]]:
    return [(place, name) for place, text in places.items() for name, word in SECRETS.items() if word.encode() in text]


def test_planted_secrets_are_found_nowhere(tmp_path: Path, servers: dict[str, Receiving]) -> None:
    run = unpack(FROZEN, tmp_path / "runs")
    for arguments in run.rglob("args.json"):
        held = json.loads(arguments.read_text())
        arguments.write_text(json.dumps({**held, "hub_token": SECRETS["args"], "wandb_api_key": SECRETS["args"]}))
    config = configured(tmp_path, servers)
    state = tmp_path / "state"
    key = {"Authorization": f"Bearer {SECRETS['token']}"}
    with watching(run, state=state, options=("--config", str(config), "-vv")) as daemon:
        for server in servers.values():
            until(lambda server=server: server.sent, daemon.child)
        until(lambda: "HTTP 403" in daemon.said(), daemon.child)
        until(lambda: len(servers["echo"].sent) > 1, daemon.child)  # the first answer was heard
        one = f"/api/v1/runs/{FROZEN}"
        more = [f"{one}/{part}" for part in ("series", "charts", "batches", "weights")]
        paths = (*more, "/metrics", "/healthz", "/", "/api/v1/runs", "/api/v1/overview", "/api/v1/alerts", one, "/nope")
        places = {path: httpx.get(f"{daemon.url}{path}", headers=key).content for path in paths}
        places["refused"] = httpx.get(f"{daemon.url}/", headers={"Authorization": "Bearer x"}).content
        assert b"kl-stuck-at-zero" in places["/api/v1/alerts"]
        assert b"kl-stuck-at-zero" in places[one]
        (tmp_path / "hmac.secret").chmod(0o644)
        until(lambda: "every user" in daemon.said(), daemon.child)
        daemon.child.terminate()
        assert daemon.ends() == 0
    places["log"] = daemon.said().encode()
    places |= {str(file): file.read_bytes() for file in state.rglob("*") if file.is_file()}
    for name, server in servers.items():
        places |= {f"{name} {n}": sent.body for n, sent in enumerate(server.sent)}
    own = f'"routing_key": "{SECRETS["pager"]}"'.encode()  # PagerDuty takes its key in the body
    assert places["pager 0"].count(own) == 1
    places["pager 0"] = places["pager 0"].replace(own, b"")
    environment = {**os.environ, "GRPO_WATCH_CONFIG": str(config)}
    for command in (
        ["config"],
        ["config", "--format", "json"],
        ["notify", "test", "--log-format", "json", "-vv"],
        ["push", "clean", "--state-dir", str(state)],
    ):
        done = subprocess.run([*PROGRAM, *command], env=environment, capture_output=True, check=False)
        places[" ".join(command)] = done.stdout + done.stderr
    assert len(places) > 15
    assert leaks(places) == []


def test_the_search_finds_what_is_there() -> None:
    assert leaks({"somewhere": ECHO}) == [("somewhere", name) for name in SECRETS]
