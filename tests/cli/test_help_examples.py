"""Every command's help ends with an example, and each runs as it stands beside the demo's run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_watch.cli.commands import COMMANDS
from grpo_watch.cli.main import run_cli
from grpo_watch.demo.replayer import replay_run
from tests.support.bundles import unpack
from tests.support.receiving import receiving
from tests.support.serving import web
from tests.web.test_app import Fake

EXIT = {"check": 1, "diff": 1, "preflight": 3}
"""The demo's run is frozen and differs from a healthy one; the launch does not name all its settings."""
ELSEWHERE = {"demo", "mcp"}
"""Run by tests of its own."""
OWN_PROCESS = {"run"}
"""Its deadline ends the process a minute after all is done."""
RULE = "rules:\n  - name: long\n    summary: Long.\n    when: completion_length_mean > 900\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", [tuple(name.split()) for name in COMMANDS], ids=" ".join)
def test_the_example_works(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli([*command, "--help"])
    found = re.findall(r"^\s*Example: grpo-watch (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert len(found) == 1
    (words,) = (each.split() for each in found)
    assert words[: len(command)] == list(command)
    if command[0] in ELSEWHERE:
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    replay_run(tmp_path / "my-run", lambda _: False, 1e9)
    unpack("trl-1.16.0-04-healthy-lora", tmp_path).rename(tmp_path / "healthy")
    (tmp_path / "my-rules.yaml").write_text(RULE)
    with receiving() as there, web(Fake()) as daemon:
        sinks = [{"type": "webhook", "url": f"{there.url}/hook"}, {"type": "pushgateway", "url": there.url}]
        (tmp_path / "grpo-watch.yaml").write_text(json.dumps({"sinks": sinks}))
        monkeypatch.setenv("GRPO_WATCH_LISTEN", daemon if command[0] == "status" else "127.0.0.1:0")
        code, out, err = (alone if command[0] in OWN_PROCESS else inside)(words, capsys)
    assert (code, "Error" in err) == (EXIT.get(command[0], 0), False), (out, err)
    assert out


def inside(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = run_cli(words)
    return code, *capsys.readouterr()


def alone(words: list[str], _: object) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-m", "grpo_watch", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr
