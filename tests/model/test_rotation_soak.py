"""A few histories of logs beside the real daemon; ``make soak`` does 500."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.rotation_soak import Batch


@pytest.mark.slow
def test_logs_that_are_rotated_deleted_and_moved_beside_the_daemon_lose_nothing(tmp_path: Path) -> None:
    batch = Batch(tmp_path, seed=40, histories=2)
    assert batch.play() == []
    assert sum(history.rows for history in batch.histories) > 30
