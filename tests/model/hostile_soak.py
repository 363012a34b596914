"""What clocks, disks, names and rights do to the real daemon, one part after the other, each with its figures.

    python -m tests.model.hostile_soak [PART …] [--seed 0]

Clocks need Debian's ``libfaketime``, the slow disk ``strace``, the parts of that name Prometheus and Chromium, the
unreadable folder root. A part whose program is missing is reported as skipped. The last line of each says PASS or FAIL.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx

from grpo_watch.metrics.exposition import label_value
from tests.model import stored
from tests.model.soak_receivers import joined
from tests.support.browser import chromium, visit
from tests.support.high import Run, options, ready, reported
from tests.support.process import PROGRAM, Process, until, watching
from tests.support.receiving import Receiving, receiving
from tests.support.servers import free_port, prometheus_command, serving

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
HOSTILE = ["<img src=x onerror=alert(1)>", "<script>alert(1)<\\script>", "javascript:alert(1)", "{{7*7}}${7*7}"]
HOSTILE += ['" onmouseover="alert(1)', "a\nb", "a\tb", "x\x1b]0;t\x07", "e\u202egpj", "a\\n", 'k="v",x{', "é" * 60]
NOBODY = 65_534
MOST_SLOW = 60.0
"""Seconds in which four messages are there while each sync takes two, on a busy machine."""
PROBE = 5.0
"""Seconds that the probes of the image, the chart and the manifests wait for health."""


class SkippedError(Exception):
    """A program is missing."""


def alternate(run: Run, count: int) -> None:
    """So many rows, each of which fires or resolves."""
    for _ in range(count):
        run.write(0.9 if run.step % 2 else 0.2)


def due(run: Run) -> list[tuple[str, int]]:
    """Status and step of each message about a run of ``alternate``, whose second row fires."""
    return [("firing" if step % 2 == 0 else "resolved", step) for step in range(2, run.step + 1)]


def all_there(run: Run, hook: Receiving, daemon: Process) -> None:
    """Every message is there, once by its id, in order; the engine is on time, and nothing stalled."""
    until(lambda: len(reported(hook)) >= len(due(run)), daemon.child)
    assert reported(hook) == due(run), (reported(hook), due(run))
    until(lambda: daemon.get("/healthz") == "ok\n", daemon.child)
    assert "run-stalled" not in daemon.get("/api/v1/alerts")


def at(folder: Path, begin: str = "+0", zone: str = "UTC", *, wall: bool = False) -> list[str]:
    """The command before a process whose clock is that of a file; ``wall``: the monotonic one goes on."""
    if not Path(FAKETIME).exists():
        raise SkippedError("libfaketime is not installed")
    (folder / "clock").write_text(begin)
    wanted = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"), "FAKETIME_NO_CACHE": "1"}
    wanted |= {"TZ": zone, **({"FAKETIME_DONT_FAKE_MONOTONIC": "1"} if wall else {})}
    return ["env", *(f"{name}={value}" for name, value in wanted.items())]


def clocks(folder: Path, chance: random.Random) -> str:
    """The wall clock is set 20 times, by up to a month either way."""
    run, jumps = Run(folder), [chance.choice([-1, 1]) * 10 ** chance.uniform(0, 6.4) for _ in range(20)]
    with receiving() as hook:
        daemon_options = {"options": options(folder, hook), "wrapped": at(folder, wall=True)}
        with watching(run.path, state=folder / "state", **daemon_options) as daemon:  # type: ignore[arg-type]
            ready(daemon)
            for jump in jumps:
                (folder / "clock").write_text(f"{jump:+.0f}")
                alternate(run, 2)
                all_there(run, hook, daemon)
    return f"20 jumps of the clock by {min(jumps):.0f} to {max(jumps):.0f} s: {len(due(run))} messages, each once, in order"  # noqa: E501


def stopped(folder: Path, chance: random.Random) -> str:
    """SIGSTOP, ten minutes by both of its clocks, SIGCONT; rows come meanwhile. Five times."""
    run, answered = Run(folder), 0.0
    with receiving() as hook:
        daemon_options = {"options": options(folder, hook), "wrapped": at(folder)}
        with watching(run.path, state=folder / "state", **daemon_options) as daemon:  # type: ignore[arg-type]
            ready(daemon)
            child = daemon.child.pid  # ``env`` has become it
            for number in range(5):
                alternate(run, 2)
                all_there(run, hook, daemon)
                os.kill(child, signal.SIGSTOP)
                alternate(run, chance.randint(1, 6))
                (folder / "clock").write_text(f"+{600 * (number + 1)}")
                os.kill(child, signal.SIGCONT)
                began = time.monotonic()
                all_there(run, hook, daemon)
                answered = max(answered, time.monotonic() - began)
    return f"5 stops of 600 s: {len(due(run))} messages, each once, in order, all within {answered:.1f} s of SIGCONT"


def zones(folder: Path, chance: random.Random) -> str:
    """A daemon in four zones goes over the hour that comes twice, or never; ``check`` says the same in all."""
    said, messages = set(), 0
    for zone, moment in {
        "Europe/Berlin": "@2026-10-25 02:59:57",
        "America/New_York": "@2026-03-08 01:59:57",
        "Australia/Lord_Howe": "@2026-04-05 01:59:57",
        "Asia/Kathmandu": "@2025-12-31 23:59:57",
    }.items():
        place = folder / zone.replace("/", "-")
        place.mkdir()
        run = Run(place)
        with receiving() as hook:
            daemon_options = {"options": options(place, hook), "wrapped": at(place, moment, zone)}
            with watching(run.path, state=place / "state", **daemon_options) as daemon:  # type: ignore[arg-type]
                ready(daemon)
                for _ in range(6):
                    alternate(run, 1)
                    all_there(run, hook, daemon)
                    threading.Event().wait(1.0)
        messages += len(due(run))
        command = [*PROGRAM, "check", "--format", "json", "runs/run"]
        environment = {**os.environ, "TZ": zone}
        found = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False)
        said.add(found.stdout)
    assert len(said) == 1, said
    return f"4 switches of the clocks of 4 zones: {messages} messages, each once, in order; check says the same in all"


def slow_disk(folder: Path, chance: random.Random) -> str:
    """Each sync of the state takes two seconds; kills meanwhile."""
    if shutil.which("strace") is None:
        raise SkippedError("strace is not installed")
    run, kills, wrapped = Run(folder), 6, ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]
    wrapped += ["-e", "inject=fsync,fdatasync:delay_enter=2000000"]
    slowest = 0.0
    with receiving() as hook:
        for _ in range(kills):
            with watching(run.path, state=folder / "state", options=options(folder, hook), wrapped=wrapped) as daemon:
                ready(daemon)
                began = time.monotonic()
                alternate(run, 4)
                all_there(run, hook, daemon)
                slowest = max(slowest, time.monotonic() - began)
                alternate(run, chance.randint(0, 3))
                threading.Event().wait(chance.uniform(0.0, 3.0))
                kill_all_below(daemon.child.pid)
        with watching(run.path, state=folder / "state", options=options(folder, hook)) as daemon:
            all_there(run, hook, daemon)
            until(lambda: len(stored.rows(folder / "state")) == run.step, daemon.child)
    assert set(stored.rows(folder / "state").values()) == {1}
    assert slowest < MOST_SLOW, slowest
    return f"syncs of 2 s, {kills} kills: {len(due(run))} messages, each once, in order, within {slowest:.1f} s; each row stored once"  # noqa: E501


def read_only(folder: Path, chance: random.Random) -> str:
    """The state can't be written for five minutes, with a row each second; then it can, and a kill follows."""
    if shutil.which("strace") is None:
        raise SkippedError("strace is not installed")
    run, state = Run(folder), folder / "state"
    refused = "write,pwrite64,writev,ftruncate,fallocate,fsync,fdatasync"
    with receiving() as hook:
        configured = options(folder, hook)
        with watching(run.path, state=state, options=configured) as daemon:
            ready(daemon)
            files = [argument for name in state.iterdir() for argument in ("-P", str(name))]
            failing = ["strace", "-f", "-qq", "-o", "/dev/null", *files, "-e", f"trace={refused}"]
            failing += ["-e", f"inject={refused}:error=EROFS", "-p", str(daemon.child.pid)]
            with subprocess.Popen(failing) as tracing:
                for _ in range(300):
                    alternate(run, 1)
                    threading.Event().wait(1.0)
                until(lambda: len(reported(hook)) >= len(due(run)), daemon.child)
                assert "state can't be written" in daemon.said()
                tracing.terminate()
            until(lambda: "state is written again" in daemon.said(), daemon.child)
            kill_all_below(daemon.child.pid)
        with watching(run.path, state=state, options=configured) as daemon:
            alternate(run, 2)
            all_there(run, hook, daemon)
            until(lambda: len(stored.rows(state)) == run.step, daemon.child)
    assert set(stored.rows(state).values()) == {1}
    again = len(hook.sent) - len(due(run))
    return f"300 s without writing, then a kill: {len(due(run))} messages, each once by its id ({again} came again), in order; each row stored once"  # noqa: E501


def kill_all_below(pid: int) -> None:
    """``strace`` and what it traces."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in [*map(int, children), pid]:
        os.kill(each, signal.SIGKILL)


def names(folder: Path, chance: random.Random) -> str:
    """A thousand runs with hostile names, scraped by a real Prometheus."""
    program, made = shutil.which("prometheus"), set[str]()
    if program is None:
        raise SkippedError("Prometheus is not installed")
    while len(made) < 1_000:
        parts = [chance.choice([*HOSTILE, chr(chance.randrange(1, 0x3000))]) for _ in range(chance.randint(1, 3))]
        name = f"{''.join(parts)}{len(made)}".replace("/", "").encode("utf-8", "ignore")[:200].decode("utf-8", "ignore")
        if name not in made:
            Run(folder, name).write(0.9, 0.9)
            made.add(name)
    config, port = folder / "prometheus.yml", free_port()
    with watching(folder / "runs", state=folder / "state") as daemon:
        until(lambda: daemon.get("/readyz") == "ready\n", daemon.child)
        target = {"job_name": "g", "scrape_interval": "5s", "static_configs": [{"targets": [daemon.url[7:]]}]}
        config.write_text(json.dumps({"scrape_configs": [target]}))
        with serving(prometheus_command(program, config, folder, port), port, "/-/ready") as server:

            def ask(query: str) -> list[Any]:
                found = httpx.get(f"{server.url}/api/v1/query", params={"query": query}, timeout=60).json()
                return found["data"]["result"]  # type: ignore[no-any-return]

            until(lambda: (found := ask("count(grpo_step)")) and found[0]["value"][1] == "1000", daemon.child)
            assert ask("up")[0]["value"][1] == "1"
            shown = {each["metric"]["run"] for each in ask("grpo_step")}
            labels = set(httpx.get(f"{server.url}/api/v1/labels", timeout=60).json()["data"])
        began = time.monotonic()
        size = len(daemon.get("/metrics"))
        took = time.monotonic() - began
    assert len(shown) == 1_000
    assert all(label_value(name) == name for name in shown)  # a line end has an escape there, spaces stay
    assert all(re.fullmatch("[a-z_]+", label) for label in labels), labels
    return (
        f"1,000 hostile names: Prometheus has a series of each, no foreign label; {size / 1e6:.1f} MB in {took:.2f} s"
    )


def pages(folder: Path, chance: random.Random) -> str:
    """Script in names, rewards, completions and tracebacks, on every page of a real Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SkippedError("Chromium is not installed")
    runs = [Run(folder, f"{text}{number}".replace("/", "")) for number, text in enumerate(HOSTILE)]
    for run in runs:
        text = chance.choice(HOSTILE)
        lines = []
        for step in range(2, 40):
            row = {"loss": 0.1, "grad_norm": 1.0, "learning_rate": 1e-6, "reward": 0.2, "kl": 0.0, "reward_std": 0.1}
            row |= {f"rewards/{each}/mean": 0.5 for each in HOSTILE}
            lines.append(json.dumps({**row, "global_step/max_steps": f"{step}/80"}))
        (run.path / "logging.jsonl").write_text("\n".join(lines) + "\n")
        dump = [{"step": "9", "prompt": each, "completion": each, each: 0.5} for each in HOSTILE for _ in range(8)]
        (run.path / "completions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in dump))
        trace = f'Traceback (most recent call last):\n  File "{text}", line 1, in <module>\nRuntimeError: {text}\n'
        (run.path / "train.log").write_text(trace)
    opened = dialogs = 0
    with watching(folder / "runs", state=folder / "state") as daemon, chromium(program) as browser:
        until(lambda: len(json.loads(daemon.get("/api/v1/runs"))["runs"]) == len(runs), daemon.child)
        ready(daemon)
        with visit(browser, daemon.url) as seen:
            said: list[str] = []
            seen.page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
            seen.page.goto(f"{daemon.url}/?token={daemon.token}")
            seen.page.locator("main").wait_for()
            slugs = [each["slug"] for each in json.loads(daemon.get("/api/v1/runs"))["runs"]]
            places = ["#/", "#/rules", *(f"#/run/{slug}" for slug in slugs), f"#/compare/{slugs[0]}?with={slugs[1]}"]
            for place in places:
                seen.open(place)
                seen.until("document.querySelector('main').textContent.length > 100")
                for fold in seen.page.locator("main details").all():
                    fold.evaluate("(each) => { each.open = true; }")
                seen.page.wait_for_timeout(300)
                assert seen.page.locator("main img, iframe, main script, object, embed").count() == 0
                inline = "[...document.querySelectorAll('*')].some((e) => [...e.attributes].some((a) => a.name.startsWith('on')))"  # noqa: E501
                assert seen.page.evaluate(inline) is False
                assert seen.page.locator("a[href^='javascript']").count() == 0
                opened += 1
            dialogs = len(said)
            assert seen.elsewhere() == []
    assert dialogs == 0, said
    return f"{opened} pages of {len(runs)} runs made of script: no dialog, no element, no handler, no request elsewhere"


def unreadable(folder: Path, chance: random.Random) -> str:
    """As nobody: folders and files of mode 0 beside runs that are well."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        raise SkippedError("needs root, to become nobody")
    runs = [Run(folder, f"run{number}") for number in range(30)]
    for number, run in enumerate(runs[:20]):
        (run.path if number % 2 else run.path / "logging.jsonl").chmod(0)
    state = folder / "kept"
    state.mkdir()
    os.chown(state, NOBODY, NOBODY)
    for place in (folder, *folder.parents):
        if place.stat().st_mode & 0o001 == 0 and place.is_relative_to(tempfile.gettempdir()):
            place.chmod(place.stat().st_mode | 0o011)
    wrapped = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env", "HOME=/nonexistent"]
    wrapped += [
        f"PYTHONPATH={os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])}",
        "PYTHONDONTWRITEBYTECODE=1",
    ]
    own = [f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}", *PROGRAM[1:]]  # root's may be in its home
    with receiving() as hook:
        configured = options(folder, hook)
        for name in ("grpo-watch.yaml", "rules.yaml"):
            (folder / name).chmod(0o644)
        with watching(
            folder / "runs", state=state / "state", options=configured, wrapped=wrapped, program=own
        ) as daemon:
            ready(daemon)
            for run in runs[20:]:
                run.write(0.9)
            until(lambda: len({json.loads(sent.body)["run"] for sent in hook.sent}) == 10, daemon.child)
            page = json.loads(daemon.get("/api/v1/runs"))
            said = f"{page['problems']} {daemon.said()}"
            assert daemon.get("/healthz") == "ok\n"
            first = said
            for run in runs[:20]:
                run.path.chmod(0o755)
                (run.path / "logging.jsonl").chmod(0o644)
            began = time.monotonic()
            until(lambda: len(json.loads(daemon.get("/api/v1/runs"))["runs"]) == 30, daemon.child)
            took = time.monotonic() - began
    named = sum(f"run{number}/" in first or f"run{number}:" in first for number in range(20))
    assert named == 20, first
    assert first.count("ermission") >= 20, first
    return f"20 of 30 runs with mode 0, as nobody: alerts of the other 10; {named} named; with their rights back seen within {took:.1f} s"  # noqa: E501


def one_state(folder: Path, chance: random.Random) -> str:
    """Six daemons begin at once with one state, again and again: one lives, and each row is stored once."""
    run, ends = Run(folder), Counter[int | str]()
    with receiving() as hook:
        configured = options(folder, hook)
        for _ in range(5):
            state = ["--listen", ":0", "--state-dir", str(folder / "state")]
            command = [*PROGRAM, "run", str(run.path), *state, *configured]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            children = [subprocess.Popen(command, **quiet) for _ in range(6)]  # type: ignore[call-overload]
            try:
                until(lambda: sum(child.poll() is not None for child in children) == 5)  # noqa: B023
                alternate(run, 4)
                until(lambda: len(reported(hook)) >= len(due(run)))
            finally:
                for child in children:
                    ends["lives" if child.poll() is None else child.returncode] += 1
                    child.kill()
                    child.wait()
        with watching(run.path, state=folder / "state", options=configured) as daemon:
            all_there(run, hook, daemon)
            until(lambda: len(stored.rows(folder / "state")) == run.step, daemon.child)
    assert set(stored.rows(folder / "state").values()) == {1}
    assert ends == {"lives": 5, 4: 25}, ends
    return (
        f"30 daemons, six at once with one state: one of six lives, 25 end with 4; {len(due(run))} messages, each once"
    )


def one_log(folder: Path, chance: random.Random) -> str:
    """Four daemons with states of their own over one log."""
    run = Run(folder)
    states = [folder / f"state{number}" for number in range(4)]
    with receiving() as hook:
        configured = options(folder, hook)
        for _ in range(3):
            daemons = [watching(run.path, state=state, options=configured) for state in states]
            entered = [each.__enter__() for each in daemons]
            for daemon in entered:
                ready(daemon)
            alternate(run, 20)
            for daemon, state in zip(entered, states, strict=True):
                until(lambda state=state: len(stored.rows(state)) == run.step, daemon.child)  # type: ignore[misc]
            until(lambda: len({json.loads(sent.body)["id"] for sent in hook.sent}) >= len(due(run)), entered[0].child)
            for each in daemons:
                each.__exit__(None, None, None)
    for state in states:
        assert set(stored.rows(state).values()) == {1}
    ids = Counter(json.loads(sent.body)["id"] for sent in hook.sent)
    assert len(ids) == len(due(run)), ids  # whichever daemon sends it
    return (
        f"4 daemons over one log, 12 kills: {run.step} rows stored once by each, {len(ids)} messages under one id each"
    )


def crowded(folder: Path, chance: random.Random) -> str:
    """Sixty clients pipeline metrics and charts of 300 growing runs and read nothing; somebody asks for health."""
    runs = [Run(folder, f"run{number}") for number in range(300)]
    asked: list[float] = []
    with watching(folder / "runs", state=folder / "state") as daemon, ExitStack() as stack:
        ready(daemon)
        slug, key = json.loads(daemon.get("/api/v1/runs"))["runs"][0]["slug"], f"Authorization: Bearer {daemon.token}"
        host, _, port = daemon.url.removeprefix("http://").rpartition(":")
        over = threading.Event()
        stack.callback(over.set)

        def crowd(path: str) -> None:
            request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{key}\r\n\r\n".encode()
            while not over.is_set():
                with suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                    client.sendall(request * 50)
                    over.wait(chance.uniform(0.1, 1.0))

        for number in range(60):
            path = ("/metrics", f"/api/v1/runs/{slug}/charts")[number % 2]
            stack.enter_context(joined(threading.Thread(target=crowd, args=(path,)), over))
        for number in range(200):
            runs[number % 300].write(0.9 if number % 2 else 0.2)
            began = time.monotonic()
            with httpx.Client(timeout=60) as client:
                assert client.get(f"{daemon.url}/healthz").text == "ok\n"
            asked.append(time.monotonic() - began)
            over.wait(0.05)
        size = len(daemon.get("/metrics"))
    asked.sort()
    assert asked[-1] < PROBE, asked[-1]
    return (
        f"60 clients that pipeline metrics ({size / 1e6:.1f} MB) and charts, and read nothing: health 200 times, half "
        f"within {1e3 * asked[100]:.0f} ms, 99 % within {asked[197]:.2f} s, all within {asked[-1]:.2f} s"
    )


PARTS: Sequence[Callable[[Path, random.Random], str]] = (clocks, stopped, zones, slow_disk, read_only, names, pages)
PARTS = (*PARTS, unreadable, one_state, one_log, crowded)


def main() -> int:
    """The exit code: 0 where no part failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *(part.__name__ for part in PARTS)])
    parser.add_argument("--seed", type=int, default=0)
    given, failed = parser.parse_args(), 0
    for part in PARTS:
        if given.parts and part.__name__ not in given.parts:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="soak") as folder:
            try:
                said = f"PASS: {part(Path(folder), random.Random(given.seed))}"
            except SkippedError as reason:
                said = f"SKIPPED: {reason}"
            except AssertionError as error:
                failed += 1
                logs = "".join(each.read_text()[-800:] for each in Path(folder).rglob("state*.log"))
                said = f"FAIL: {error!s:.2000}\n{logs}"
        print(f"{part.__name__}: {said} (seed {given.seed}, {time.monotonic() - began:.0f} s)", flush=True)  # noqa: T201  its output
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
