"""The MCP server, driven by the SDK's own client: every tool, hostile runs, and an agent that stops a frozen run."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_watch.cli.main import run_cli
from grpo_watch.cli.mcp_server import make_server
from grpo_watch.report.agent import run_id
from tests.support.bundles import unpack
from tests.support.planted_instructions import HOSTILE, ORDER
from tests.support.process import PATIENCE
from tests.support.serving import web
from tests.web.test_app import Fake

mcp = pytest.importorskip("mcp")
FROZEN, HEALTHY = "ms-swift-4.6.0-04b-frozen-optnoop-full", "trl-1.16.0-04-healthy-lora"
TOOLS = {"runs", "status", "check", "explain", "sources", "preflight", "audit", "diff", "wait"}
LAUNCH = "python grpo.py --per_device_train_batch_size 6 --num_generations 4"


def with_client(work: Callable[[Any], Awaitable[Any]], server: Any = None) -> Any:
    """What ``work`` gives, done with a client of the server."""

    async def main() -> Any:
        async with mcp.Client(server or make_server()) as client:
            return await work(client)

    return asyncio.run(main())


async def call(client: Any, tool: str, **arguments: Any) -> Any:
    """The answer: a document, or a text."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    text = answer.content[0].text
    return json.loads(text) if text.startswith("{") else text


def test_every_tool_answers_and_says_that_it_only_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (FROZEN, HEALTHY):
        unpack(name, tmp_path)
    frozen, healthy = str(tmp_path / FROZEN), str(tmp_path / HEALTHY)

    async def work(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
        listed = (await call(client, "runs", path=str(tmp_path)))["runs"]
        assert {run["id"]: run["verdict"] for run in listed} == {run_id(FROZEN): "critical", run_id(HEALTHY): "healthy"}
        assert (await call(client, "check", path=str(tmp_path), run=run_id(HEALTHY))).startswith(
            "grpo-watch: healthy\n"
        )
        assert "critical kl-stuck-at-zero: since step 3" in await call(client, "check", path=frozen)
        assert FROZEN in await call(client, "check", path=frozen, with_texts=True)
        assert (await call(client, "explain", rule="kl-stuck-at-zero"))["severity"] == "critical"
        (read,) = (await call(client, "sources", path=frozen))["runs"]
        assert sum(channel["records"] for channel in read["channels"]) >= 60
        assert read["judged"] < read["applicable"]
        launch = {"launch": LAUNCH, "framework": "trl", "framework_version": "1.16.0", "world_size": 1}
        judged = await call(client, "preflight", **launch)
        assert {"check": "batch-not-divisible", "severity": "critical"} in judged["problems"]
        assert "message" in (await call(client, "preflight", **launch, with_texts=True))["problems"][0]
        apart = await call(client, "diff", first=frozen, second=healthy)
        assert apart["verdict"] == "parted"
        assert apart["common_steps"] == 60
        assert (await call(client, "wait", path=frozen))["finding"]["rule"] == "kl-stuck-at-zero"
        (known,) = (await call(client, "audit", launch=LAUNCH, python=sys.prefix))["audits"]
        assert not known["applies"]  # a launch of a trainer that this environment lacks
        wrong = await client.call_tool("explain", {"rule": "kl-stuck"})
        assert wrong.is_error
        assert "unknown rule 'kl-stuck'" in wrong.content[0].text
        assert (await client.call_tool("check", {"path": frozen, "run": "run-0"})).is_error

    with_client(work)
    with web(Fake()) as place:
        monkeypatch.setenv("GRPO_WATCH_LISTEN", place)
        asked = with_client(lambda client: call(client, "status"))
    assert [run["verdict"] for run in asked["runs"]] == ["critical"]
    assert "v0 run" not in json.dumps(asked)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_no_tool_repeats_a_text_of_a_hostile_run(name: str, tmp_path: Path) -> None:
    HOSTILE[name](tmp_path)
    path, settings = str(tmp_path), {"beta": 0.04, "num_generations": 4}

    async def work(client: Any) -> list[Any]:
        return [
            await call(client, "runs", path=path),
            await call(client, "check", path=path, settings=settings),
            await call(client, "sources", path=path),
            await call(client, "diff", first=path, second=path),
            await call(client, "wait", path=path, until="step=8", timeout="5m"),
            await call(client, "audit", path=path),
            (await client.call_tool("preflight", {"launch": str(tmp_path / "r"), "dataset_size": 100})).content[0].text,
        ]

    answers = with_client(work)
    assert ORDER not in json.dumps(answers).lower()
    assert answers[1].count("\nrun-") == 1


@pytest.mark.slow
def test_an_agent_over_stdio_stops_the_frozen_run_and_leaves_its_twin(tmp_path: Path) -> None:
    """What SKILL.md says, as a script: wait for both, stop what is critical. The jobs write a recorded run each."""
    jobs = {}
    for name, replay in (("frozen", "replay_run"), ("healthy", "replay_healthy")):
        code = (
            f"import pathlib, threading; from grpo_watch.demo.replayer import {replay} as replay; "
            f"replay(pathlib.Path({str(tmp_path / name)!r}), threading.Event().wait, 6.0); "
        )
        jobs[name] = subprocess.Popen(
            [sys.executable, "-c", f"{code}threading.Event().wait() if {name == 'frozen'} else 0"]
        )
    command = mcp.StdioServerParameters(command=sys.executable, args=["-m", "grpo_watch", "mcp"], cwd=str(Path.cwd()))
    server = mcp.stdio_client(command)

    async def tend(client: Any, name: str) -> str:
        while True:
            answer = await call(client, "wait", path=str(tmp_path / name), timeout="20s")
            if answer["outcome"] == "happened":
                jobs[name].terminate()
            if answer["outcome"] != "timeout" or jobs[name].poll() is not None:
                return str(answer["outcome"])

    async def work(client: Any) -> list[str]:
        return list(await asyncio.gather(tend(client, "frozen"), tend(client, "healthy")))

    try:
        outcomes = with_client(work, server)
        assert outcomes[0] == "happened"
        assert jobs["frozen"].wait(PATIENCE) == -signal.SIGTERM
        assert jobs["healthy"].wait(PATIENCE) == 0
        assert outcomes[1] in {"ended-without", "timeout"}
    finally:
        for job in jobs.values():
            job.kill()
            job.wait()


def test_the_skill_names_tools_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["skill"]) == 0
    skill = capsys.readouterr().out
    assert skill.startswith("---\nname: grpo-watch\ndescription: ")
    last = skill.splitlines()[-1]
    assert all(tool in last for tool in TOOLS)


def test_without_the_sdk_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert run_cli(["mcp"]) == 2
    shown = capsys.readouterr().err
    assert "needs the MCP SDK" in shown
    assert "[mcp]" in shown
