"""Every way in compares in constant time, whatever is given."""

from __future__ import annotations

import ast
import hmac
from pathlib import Path
from typing import Any

import httpx
import pytest

from grpo_watch.config.fields import SecretFile
from grpo_watch.web import access
from grpo_watch.web.access import AccessKeys
from tests.support.receiving import secret_file
from tests.support.serving import web
from tests.web.test_access import bearer
from tests.web.test_app import Fake

TOKEN = "geheim-7f3a"  # noqa: S105  a test's


class Spy:
    """Stands where a function is, and notes what it is called with."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls.append(given)
        return self.function(*given, **named)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy(hmac.compare_digest)
    monkeypatch.setattr(hmac, "compare_digest", spy)
    return spy


@pytest.mark.parametrize(
    ("given", "status"),
    [(TOKEN, 200), ("geheim-7f3b", 401), ("x", 401), (f"{TOKEN}{TOKEN}", 401), (TOKEN[:-1], 401)],
)
@pytest.mark.parametrize("how", ["bearer", "link", "cookie"])
def test_tokens(how: str, given: str, status: int, compared: Spy, tmp_path: Path) -> None:
    """As bearer, in the address and in the cookie; right, wrong, longer and shorter."""
    alone = AccessKeys(SecretFile(secret_file(tmp_path / "token", TOKEN)))
    name, value = access._cookie(TOKEN)
    headers = {"bearer": bearer(given), "cookie": {"Cookie": f"{name}={access._cookie(given)[1]}"}, "link": {}}[how]
    with web(Fake(), alone) as place:
        query = {"token": given} if how == "link" else {}
        answer = httpx.get(f"http://{place}/api/v1/runs", headers=headers, params=query)
        assert answer.status_code == status
    shown = {given.encode()} if how != "cookie" else {access._cookie(given)[1].encode()}
    assert shown <= {call[0] for call in compared.calls}
    assert {call[1] for call in compared.calls} <= {TOKEN.encode(), value.encode()}


def test_nothing_secret_is_compared_with_an_operator() -> None:
    """In this module ``==``, ``!=`` and ``in`` touch names of headers, never what was read."""
    secret = {"token", "given", "known", "cookie", "value"}
    tree = ast.parse(Path(access.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            names = {part.id for side in (node.left, *node.comparators) for part in ast.walk(side) if _is_name(part)}
            lengths = isinstance(node.left, ast.Call) and ast.unparse(node.left.func) == "len"
            assert lengths or not names & secret, ast.unparse(node)


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)
