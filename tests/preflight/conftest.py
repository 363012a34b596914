"""What is installed where the tests run takes no part in them."""

from __future__ import annotations

import pytest

from tests.preflight.launches import hide_installed


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_installed(monkeypatch)
