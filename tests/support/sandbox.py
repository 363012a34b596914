"""Commands as nobody, without capabilities, in a mount namespace of their own."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

NOBODY = 65534
LIBRARIES = os.pathsep.join([str(Path.cwd()), *(path for path in sys.path if Path(path).name == "site-packages")])


def unprivileged(user: int = NOBODY) -> list[str]:
    """What runs a command as this user without any capability, and without a way to gain one."""
    return [
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
    ]


def confined(writable: Path, command: Sequence[str]) -> list[str]:
    """The command in a mount namespace in which everything but ``writable`` is read-only."""
    folder = shlex.quote(str(writable))
    mounts = f"mount --bind {folder} {folder} && mount -o remount,bind,ro / && cd {folder}"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"{mounts} && exec {shlex.join(command)}"]


def environment() -> dict[str, str]:
    """Nothing of the caller's but the path."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": LIBRARIES, "HOME": "/nonexistent", "NO_COLOR": "1"}


def status_of(text: str) -> dict[str, str]:
    """The fields of ``/proc/PID/status``."""
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def assert_powerless(status: dict[str, str], user: int) -> None:
    """The process is the user's through and through, holds no capability and can't gain any."""
    assert set(status["Uid"].split()) == {str(user)}
    assert status["NoNewPrivs"] == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
