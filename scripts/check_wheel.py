"""Checks an installed grpo-watch against the checkout it was built from: run by a clean environment's Python.

PYTHON - CHECKOUT < scripts/check_wheel.py
"""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from importlib.metadata import distribution
from pathlib import Path

import grpo_watch
from grpo_watch.demo.replayer import replay_run

ROW = '{"loss": 0.1, "reward": 0.5, "kl": 0.01, "grad_norm": 1.0, "global_step/max_steps": "%d/100"}\n'


def main(checkout: Path) -> None:
    """Raise where something is missing or differs."""
    package = Path(grpo_watch.__file__).parent
    if checkout in package.parents:
        raise SystemExit(f"{package} is the checkout, no installation")
    for folder, installed in (("grpo_watch", package), ("rules", package / "_rules")):
        wanted = [path for path in (checkout / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"]
        for path in wanted:
            copy = installed / path.relative_to(checkout / folder)
            if not copy.is_file() or copy.read_bytes() != path.read_bytes():
                raise SystemExit(f"not installed as it is in the checkout: {path}")
    program = Path(sys.executable).parent / "grpo-watch"
    version = distribution("grpo-watch").version
    said = _run(program, "--version")
    if said != f"grpo-watch {version}\n":
        raise SystemExit(f"unexpected version: {said}")
    rules = _run(program, "rules", "list")
    for name in ("kl-stuck-at-zero", "run-crashed"):
        if name not in rules or not _run(program, "explain", name):
            raise SystemExit(f"rule or runbook is missing: {name}")
    run = Path("run").absolute()
    replay_run(run, lambda _: False, 1.0)
    if "parameters-unchanged" not in _run(program, "check", run, "--fail-on", "never"):
        raise SystemExit(f"the bundled run is judged differently: {run}")
    _run(program, "demo")  # fails unless an alert fired
    _serve(program, Path("serve"))
    print(f"grpo-watch {version}: files, console script, rules, runbooks, verdict, demo and page are there")


def _run(program: Path, *arguments: str | Path) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, timeout=120).stdout


def _serve(program: Path, folder: Path) -> None:
    """Ask a daemon for its page and for a file of it."""
    log = folder / "runs" / "run" / "logging.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(ROW % step for step in range(1, 20)))
    command = [program, "run", folder / "runs", "--listen", ":0", "--state-dir", folder / "state"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as daemon:
        guard = threading.Timer(120, daemon.kill)
        guard.start()
        try:
            lines = daemon.stdout or ()
            page = next(line.split("page: ")[1].strip() for line in lines if "page: " in line)
            base, _, token = page.partition("/?token=")
            for path, part in (("/", b"<html"), ("/metrics", b"grpo_watch_build_info")):
                asked = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {token}"})
                if part not in urllib.request.urlopen(asked, timeout=60).read():
                    raise SystemExit(f"unexpected answer: {path}")
        finally:
            guard.cancel()
            daemon.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
