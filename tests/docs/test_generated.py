"""What `make docs` writes is up to date, and nothing it wrote once stays behind."""

from __future__ import annotations

import subprocess
import sys

from grpo_watch.catalogue import catalogue
from tests.support.markdown import ROOT


def test_generated_documents_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert {path.stem for path in (ROOT / "docs" / "rules").iterdir()} == set(catalogue())
