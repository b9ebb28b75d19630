from __future__ import annotations

import argparse
from pathlib import Path

import certificates
import pytest

from flowjoin._cli.api_client import add_server_arguments, server_of
from flowjoin._cli.commands import CommandError


def parsed(*arguments: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_server_arguments(parser)
    return parser.parse_args([str(argument) for argument in arguments])


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("right\n", encoding="utf-8")
    return file


def test_without_arguments_this_machine_is_asked_in_the_clear() -> None:
    server = server_of(parsed())
    assert (str(server), server.tls, server.token) == ("127.0.0.1:10348", None, None)


def test_an_https_address_is_asked_over_tls_with_the_token(token: Path) -> None:
    server = server_of(parsed("--server", "https://flows.example:10348/", "--token-file", token))
    assert (str(server), server.token) == ("https://flows.example:10348", "right")
    assert server.tls is not None
    assert server.tls.check_hostname
    assert "right" not in repr(server)


def test_where_it_listens_everywhere_this_machine_is_asked(tmp_path: Path, token: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        f"collectors: []\napiServer: {{address: '[::]:7', tls: selfSigned, token: {{file: {token}}}}}\n",
        encoding="utf-8",
    )
    server = server_of(parsed("-c", file, "--insecure"))
    assert (str(server), server.token) == ("https://[::1]:7", "right")
    assert server.tls is not None
    assert not server.tls.check_hostname


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--ca", "x"), "--ca is for TLS; write the address with tls:// or https://"),
        (("--server", "https://a:1", "--ca", "/gone"), "--ca /gone cannot be used: No such file or directory"),
        (("--server", "https://a:1", "--key", "k"), "--key is given without --certificate"),
        (
            ("--server", "192.0.2.1:1", "--token-file", "TOKEN"),
            "the token would be readable on the way to 192.0.2.1:1; write --server https://192.0.2.1:1",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence(token: Path, arguments: tuple[str, ...], sentence: str) -> None:
    given = [str(token) if argument == "TOKEN" else argument for argument in arguments]
    with pytest.raises(CommandError) as caught:
        server_of(parsed(*given))
    assert str(caught.value) == sentence


def test_a_certificate_with_another_key_is_one_sentence(tmp_path: Path) -> None:
    certificate, key = certificates.write(tmp_path, "client", certificates.client())
    key.write_bytes(certificates.server().key)
    arguments = parsed("--server", "https://a:1", "--certificate", certificate, "--key", key)
    with pytest.raises(CommandError, match=r"client\.crt with .*client\.key cannot be used: key values mismatch"):
        server_of(arguments)


@pytest.mark.parametrize("text", ["ftp://a:1", "https://a", "https://a:0", "a"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        parsed("--server", text)
