"""The steps of scripts/release, wheel and audit, with tools that play pip, uv, hatchling, cyclonedx and pip-audit."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.process import PATIENCE

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
VENV = """#!/bin/sh
mkdir -p "$1/bin"
cp tools/* "$1/bin"
"""
PYTHON = """#!/bin/sh
echo "python $*" >>"$LOG"
case "$*" in
"- "*) mkdir run ;;
*" install --quiet uv") exit "${NO_PIPX:-0}" ;;
*" install "*pip-audit*) exit "${NO_AUDIT:-0}" ;;
*" install "*uv*) exit "${NO_UV:-0}" ;;
"-c "*) exit "${NO_INDEX:-0}" ;;
esac
"""
HATCHLING = """#!/bin/sh
for last; do :; done
mkdir -p "$last"
echo "wheel ${BUILD:-$SOURCE_DATE_EPOCH}" >"$last/grpo_watch-1-py3-none-any.whl"
case "$*" in *"-t wheel"*) [ -z "${ODD:-}" ] || echo odd >>"$last/grpo_watch-1-py3-none-any.whl"; exit ;; esac
tar -czf "$last/grpo_watch-1.tar.gz" -C tools . --transform 's,^,grpo_watch-1/,'
"""
TOOL = """#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
[ "$*" != "pip install --quiet pipx" ] || exit "${NO_INDEX:-0}"
echo "${JUDGED:-parameters-unchanged}"
"""
CYCLONEDX = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo '{}' >"$2"
"""
LOCK = """#!/bin/sh
echo "$LOCKED" >&2
exit "${STALE:-0}"
"""
AUDIT = """#!/bin/sh
echo "$FOUND"
exit "${VULNERABLE:-0}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the two scripts, and tools that answer at once."""
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    (project / "scripts").mkdir()
    for name in ("release", "wheel", "audit"):
        shutil.copy(SCRIPTS / name, project / "scripts" / name)
    tools = {"python": PYTHON, "hatchling": HATCHLING, "cyclonedx-py": CYCLONEDX, "pip-audit": AUDIT}
    tools |= {"uv": TOOL, "uvx": TOOL, "pipx": TOOL}
    for path, text in {
        "scripts/venv": VENV,
        "scripts/lock": LOCK,
        **{f"tools/{name}": text for name, text in tools.items()},
    }.items():
        (project / path).write_text(text)
        (project / path).chmod(0o755)
    (project / "scripts" / "check_wheel.py").write_text("")
    return project


def run(project: Path, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script's exit; what python was asked for is in ``log``."""
    env = {
        "PATH": os.environ["PATH"],
        "LOG": str(project / "log"),
        "HOME": str(project),
        "FOUND": "",
        "LOCKED": "",
        **variables,
    }
    command = [str(project / "scripts" / script), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_release_is_built_checked_and_summed(project: Path) -> None:
    done = run(project, "release", "out")
    assert done.returncode == 0, done.stderr
    out = project / "out"
    assert {path.name for path in out.iterdir()} == {
        "grpo_watch-1-py3-none-any.whl",
        "grpo_watch-1.tar.gz",
        "sbom.cdx.json",
        "SHA256SUMS",
    }
    listed = {line.split()[1] for line in (out / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in out.iterdir()} - {"SHA256SUMS"}
    assert subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=out, capture_output=True, check=False).returncode == 0
    assert "not signed" in done.stderr
    asked = (project / "log").read_text()
    for pinned in ("build-requirements.txt", "--only-binary :all: -r deploy/container/requirements.txt"):
        assert f"--require-hashes {pinned}" in asked or f"--require-hashes -r deploy/container/{pinned}" in asked
    assert "--no-deps --no-index" in asked, "the wheel itself is installed, and nothing else with it"


@pytest.mark.parametrize(
    ("variables", "code", "said", "asked"),
    [
        ({}, 0, "pipx run --spec: has judged a run", ["uv pip", "uvx --from", "pipx run --spec"]),
        ({"NO_PIPX": "1"}, 0, "not tried with uvx and pipx", []),
        ({"NO_INDEX": "1"}, 0, "not tried with uvx and pipx", ["uv pip"]),
        ({"JUDGED": "healthy"}, 1, "no verdict with uvx --from", ["uv pip", "uvx --from"]),
    ],
)
def test_a_wheel_is_tried_with_uvx_and_pipx(
    project: Path, variables: dict[str, str], code: int, said: str, asked: list[str]
) -> None:
    done = run(project, "wheel", **variables)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stderr
    calls = [line for line in (project / "log").read_text().splitlines() if line.startswith(("uv", "pipx"))]
    assert [call.startswith(start) for call, start in zip(calls, asked, strict=True)] == [True] * len(asked)
    assert all("grpo-watch check . " in call for call in calls[1:])


def test_a_wheel_that_another_build_makes_differently_is_no_release(project: Path) -> None:
    done = run(project, "release", "out", ODD="1")
    assert done.returncode != 0
    assert not (project / "out" / "SHA256SUMS").exists()


def test_the_sums_are_signed(project: Path, tmp_path: Path) -> None:
    """With the command that verifies them, as the script's head says."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("not run, not installed: ssh-keygen")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    assert run(project, "release", "out", GRPO_WATCH_SIGNING_KEY=str(key)).returncode == 0
    out = project / "out"
    (out / "signers").write_text(f"me {(tmp_path / 'key.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", "signers", "-I", "me", "-n", "grpo-watch", "-s", "SHA256SUMS.sig"]
    sums = (out / "SHA256SUMS").read_bytes()
    for text, code in ((sums, 0), (sums + b"x", 255)):
        assert subprocess.run(verify, cwd=out, input=text, capture_output=True, check=False).returncode == code


def test_pins_that_are_not_what_is_asked_for_fail_the_audit(project: Path) -> None:
    found = run(project, "audit", STALE="1", LOCKED="> tomli==2.5.0\nlock: requirements.txt is not what is asked for")
    assert (found.returncode, found.stderr) == (1, "lock: requirements.txt is not what is asked for\n")


def test_a_vulnerable_dependency_is_no_release(project: Path) -> None:
    found = run(project, "release", "out", VULNERABLE="1", FOUND="numpy 1.0 PYSEC-1")
    assert found.returncode == 1
    assert "PYSEC-1" in found.stderr
    assert not (project / "out" / "SHA256SUMS").exists()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"NO_AUDIT": "1"}, "not run: pip-audit can't be installed"),
        ({"NO_UV": "1"}, "uv can't be installed here"),
        ({"STALE": "2", "LOCKED": "error: failed to fetch"}, "uv can't ask the index here"),
        ({"NO_INDEX": "1"}, "not run: https://pypi.org can't be reached"),
        ({"FOUND": "x could not be audited"}, "does not know 1 of the packages"),
        ({}, ""),
    ],
)
def test_an_audit_that_can_not_be_made_says_so_and_passes(project: Path, variables: dict[str, str], said: str) -> None:
    done = run(project, "audit", **variables)
    assert done.returncode == 0
    assert (said in done.stderr) if said else not done.stderr
