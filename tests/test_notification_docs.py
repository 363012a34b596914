"""docs/notifications.md: its settings load, its code accepts our signature, its addresses are known to apprise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings
from grpo_watch.notify.receivers.webhook import signature
from tests.contract.test_apprise_services import SERVICES
from tests.support.every_receiver import code_blocks

PAGE = Path("docs/notifications.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", code_blocks("yaml"))
def test_settings_load(text: str) -> None:
    assert converted(Settings, yaml.safe_load(text)) != Settings()


def test_the_example_of_the_signature_accepts_ours() -> None:
    (text,) = (block for block in code_blocks("python") if "is_ours" in block)
    names: dict[str, Any] = {}
    exec(text, names)  # noqa: S102  our own page
    headers = signature(b"geheim", b"{}", 1_795_000_000.0)
    assert names["is_ours"](headers, b"{}", b"geheim", 1_795_000_010.0)
    assert not names["is_ours"](headers, b"{ }", b"geheim", 1_795_000_010.0)
    assert not names["is_ours"](headers, b"{}", b"other", 1_795_000_010.0)
    assert not names["is_ours"](headers, b"{}", b"geheim", 1_795_001_000.0)


@pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")
def test_addresses_for_apprise_are_known_to_it() -> None:
    """Those of the table are of the kinds that are tested against a server, and mail."""
    import apprise  # noqa: PLC0415  slow

    rows = re.findall(r"^\| [^|]+ \| (`[a-z]+://.*) \|$", PAGE, re.MULTILINE)
    addresses = [address for row in rows for address in re.findall(r"`([a-z]+://[^`]+)`", row)]
    tested = {url.partition(":")[0] for url in SERVICES} | {"mailtos"}
    assert addresses
    assert {address.partition(":")[0] for address in addresses} <= tested
    for address in addresses:
        assert apprise.Apprise().add(address), address
