"""What tests of a confined daemon share."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sandbox import confined, environment, unprivileged


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others may enter, other than pytest's own."""
    with tempfile.TemporaryDirectory(prefix="grpo-watch-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def interpreter(tmp_path: Path) -> str:
    """One that nobody may run: ours may be in root's home, the system's is as good where it is of the same version."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("not run, not installed: root's rights to make a mount namespace")
    probe = "import grpo_watch.cli.run"
    for candidate in (sys.executable, "/usr/bin/python3"):
        shell = ["sh", "-c", 'exec "$@"', "sh"]  # what setpriv itself starts may lie where only root may look
        command = confined(tmp_path, [*unprivileged(), *shell, candidate, "-c", probe])
        if subprocess.run(command, env=environment(), capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.skip("not run, not installed: a kernel that allows unshare, and a Python that nobody may run")
