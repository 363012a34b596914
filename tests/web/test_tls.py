"""Encrypted connections, and clients that must show their certificate."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from grpo_watch.cli.http_listener import PLAIN, HttpListener, protection_of
from grpo_watch.config.fields import converted
from grpo_watch.config.schema import Settings, Web
from grpo_watch.errors import ConfigError
from grpo_watch.web.access import AccessKeys
from tests.support.process import PATIENCE
from tests.support.receiving import secret_file
from tests.support.serving import web
from tests.web.test_app import Fake

AUTHORITY = trustme.CA()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    issue(tmp_path, AUTHORITY)
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path


def issue(folder: Path, authority: trustme.CA) -> trustme.LeafCert:
    made = authority.issue_cert("127.0.0.1", "localhost")
    secret_file(folder / "key.pem", made.private_key_pem.bytes().decode())
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    return made


def protection(folder: Path, **more: str) -> tuple[AccessKeys, ssl.SSLContext | None]:
    files = {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}
    return protection_of(converted(Web, {**files, **more}))


def test_old_versions_of_tls_are_refused(folder: Path) -> None:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with web(Fake(), tls=protection(folder)[1]) as place:
        host, _, port = place.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE) as plain,
            pytest.raises(ssl.SSLError),
        ):
            context.wrap_socket(plain, server_hostname="localhost")


def test_clients_show_their_certificate(folder: Path) -> None:
    """With it the page is open to any peer; a certificate of another authority is none."""
    keys, tls = protection(folder, tls_client_ca=str(folder / "ca.pem"))
    assert (keys.token, keys.anywhere) == (None, True)
    good, stranger = AUTHORITY.issue_cert("person"), trustme.CA().issue_cert("stranger")
    with web(Fake(), keys, tls) as place:
        mine = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        good.configure_cert(mine)
        headers = {"X-Forwarded-For": "10.0.0.1"}  # as from elsewhere
        assert httpx.get(f"https://{place}/", verify=mine, headers=headers).status_code == 200
        for other in (ssl.create_default_context(cafile=str(folder / "ca.pem")), foreign(folder, stranger)):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"https://{place}/metrics", verify=other)


def foreign(folder: Path, certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    certificate.configure_cert(context)
    return context


def test_mistakes_are_reported_at_the_start(folder: Path) -> None:
    other = trustme.CA().issue_cert("other")
    secret_file(folder / "key.pem", other.private_key_pem.bytes().decode())
    with pytest.raises(ConfigError, match=r"cert\.pem: not a certificate with a matching key"):
        protection(folder)
    (folder / "key.pem").chmod(0o644)
    with pytest.raises(ConfigError, match="every user"):
        protection(folder)
    issue(folder, AUTHORITY)
    with pytest.raises(ConfigError, match=r"none\.pem: contains no certificate"):
        protection(folder, tls_client_ca=str(folder / "none.pem"))
    with pytest.raises(ConfigError, match="the secret can't be read"):
        protection_of(converted(Web, {"token_file": str(folder / "token")}))
    with pytest.raises(ValueError, match="tls_client_ca needs"):
        converted(Web, {"tls_client_ca": str(folder / "ca.pem")})


def test_a_token_over_a_network_without_encryption_is_warned_of(folder: Path) -> None:
    token = {"token_file": str(secret_file(folder / "token", "geheim"))}
    tls = {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}
    for listen, files, warned in (
        ("0.0.0.0:0", token, True),
        ("127.0.0.1:0", token, False),
        ("0.0.0.0:0", token | tls, False),
    ):
        front = HttpListener(Settings(listen=listen, web=converted(Web, files)))
        assert (PLAIN in front.start_lines()) is warned
        assert ("metrics: https://" in "".join(front.start_lines())) is ("tls_cert" in files)
        front.close()
