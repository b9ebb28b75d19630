from __future__ import annotations

import datetime
import json
from pathlib import Path

import certificates
import pytest
from cryptography import x509

from flowjoin.__main__ import main


def certs(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["certs", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def pki(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    directory = tmp_path / "pki"
    assert certs("init", directory, capsys=capsys)[0] == 0
    return directory


def test_an_authority_issues_servers_and_clients_and_shows_them(pki: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certs("issue", pki, "--server", "collector", "--san", "192.0.2.1", "--valid-for", "90d", capsys=capsys) == (
        0,
        f"{pki}/collector.crt {pki}/collector.key\n",
        "",
    )
    assert certs("issue", pki, "--client", "node-1", capsys=capsys)[0] == 0
    code, out, _ = certs("show", pki, "--output", "json", capsys=capsys)
    assert code == 0
    assert [(row["file"], row["kind"], row["names"], row["days_left"], row["state"]) for row in json.loads(out)] == [
        ("ca.crt", "authority", [], 364, "ok"),
        ("collector.crt", "server", ["collector", "192.0.2.1"], 89, "ok"),
        ("node-1.crt", "client", [], 364, "ok"),
    ]
    for path in pki.glob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_overwritten_unless_it_is_renewed(pki: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (pki / "ca.crt").read_bytes()
    code, _, err = certs("init", pki, capsys=capsys)
    assert (code, err) == (2, f"flowjoin: {pki}/ca.crt is there already; an authority is not made twice\n")
    assert (pki / "ca.crt").read_bytes() == before
    certs("issue", pki, "--client", "node-1", capsys=capsys)
    first = (pki / "node-1.crt").read_bytes()
    code, _, err = certs("issue", pki, "--client", "node-1", capsys=capsys)
    assert (code, err) == (2, f"flowjoin: {pki}/node-1.crt is there already; --renew takes its place\n")
    assert (pki / "node-1.crt").read_bytes() == first
    assert certs("issue", pki, "--client", "node-1", "--renew", capsys=capsys)[0] == 0
    assert (pki / "node-1.crt").read_bytes() != first


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--client", "../x"), '"../x" cannot be a file\'s name; write 1 to 64 letters, digits, "_", "." or "-"'),
        (("--client", "ca"), '"ca" cannot be a file\'s name; write 1 to 64 letters, digits, "_", "." or "-"'),
        (("--server", "a", "--san", "b c"), '"b c" is neither an address nor a DNS name'),
        (("--client", "a", "--san", "b"), "--san is of servers; a client has its name alone"),
    ],
)
def test_what_cannot_be_issued_is_one_sentence(
    pki: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert certs("issue", pki, *arguments, capsys=capsys) == (2, "", f"flowjoin: {sentence}\n")


@pytest.mark.parametrize("text", ["1h", "0d", "9999999d", "10", "d", "-5d"])
def test_a_validity_that_is_none_is_refused(pki: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert certs("issue", pki, "--client", "a", f"--valid-for={text}", capsys=capsys)[0] == 2


def test_a_directory_that_is_not_there_cannot_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = certs("show", tmp_path / "none", capsys=capsys)
    assert (code, err) == (2, f"flowjoin: {tmp_path}/none is no directory\n")


def test_an_issuer_that_is_not_there_or_no_authority_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = certs("issue", tmp_path, "--client", "a", capsys=capsys)
    hint = f"make an authority: flowjoin certs init {tmp_path}"
    assert (code, err) == (2, f"flowjoin: {tmp_path}/ca.crt is not there; {hint}\n")
    certificates.write(tmp_path, "ca", certificates.client())
    code, _, err = certs("issue", tmp_path, "--client", "a", capsys=capsys)
    assert (code, err) == (2, f"flowjoin: {tmp_path}/ca.crt cannot issue: it is no authority\n")


def test_what_is_wrong_with_certificates_is_shown_and_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates.write(tmp_path, "ca", certificates.authority())
    certificates.write(tmp_path, "expired", certificates.client(is_expired=True))
    certificates.write(tmp_path, "early", certificates.client(is_early=True))
    certificates.write(tmp_path, "stranger", certificates.client("other"))
    certificates.write(tmp_path, "open", certificates.client())[1].chmod(0o644)
    certificates.write(tmp_path, "mixed", certificates.client())[1].write_bytes(certificates.server().key)
    (tmp_path / "broken.crt").write_bytes(b"x")
    code, out, err = certs("show", tmp_path, "--output", "json", capsys=capsys)
    assert code == 1
    assert {row["file"]: row["state"] for row in json.loads(out)} == {
        "ca.crt": "ok",
        "broken.crt": "holds no certificate that can be read",
        "early.crt": "is not valid yet",
        "expired.crt": "has expired",
        "mixed.crt": "mixed.key does not belong to the certificate; in a chain the server's own one comes first",
        "open.crt": "open.key can be read by others than its owner; chmod 600 it",
        "stranger.crt": "is not of the authority in ca.crt",
    }
    assert err == (
        "flowjoin: something is wrong with broken.crt, early.crt, expired.crt, mixed.crt, open.crt, stranger.crt\n"
    )


def test_an_empty_directory_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certs("show", tmp_path, capsys=capsys) == (0, f"no certificate is in {tmp_path}\n", "")


def end_of(path: Path) -> datetime.datetime:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc


def test_a_certificate_ends_with_its_authority_unless_it_is_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certs("init", tmp_path, "--valid-for", "100d", capsys=capsys)
    assert certs("issue", tmp_path, "--client", "node-1", capsys=capsys) == (
        0,
        f"{tmp_path}/node-1.crt {tmp_path}/node-1.key\n",
        "",
    )
    end = end_of(tmp_path / "ca.crt")
    assert end_of(tmp_path / "node-1.crt") == end
    code, _, err = certs("issue", tmp_path, "--client", "node-2", "--valid-for", "200d", capsys=capsys)
    assert (code, err) == (
        0,
        "warning: the certificate outlives its authority: nobody takes it after "
        f"{end:%Y-%m-%d}, when {tmp_path}/ca.crt ends\n",
    )
    assert (end_of(tmp_path / "node-2.crt") - end).days == 100
    code, out, err = certs("show", tmp_path, "--output", "json", capsys=capsys)
    assert (code, err) == (0, "")
    assert {row["file"]: row["state"] for row in json.loads(out)} == {
        "ca.crt": "ok",
        "node-1.crt": "ok",
        "node-2.crt": f"outlives its authority, and is taken until {end:%Y-%m-%d}",
    }


def test_an_authority_that_ends_soon_is_told_with_what_it_issues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certs("init", tmp_path, "--valid-for", "20d", capsys=capsys)
    code, _, err = certs("issue", tmp_path, "--server", "collector", capsys=capsys)
    end = f"{end_of(tmp_path / 'ca.crt'):%Y-%m-%d}"
    assert (code, err) == (
        0,
        f"warning: {tmp_path}/ca.crt ends on {end}, and with it what it issues; make a new one in another directory\n",
    )
    code, out, _ = certs("show", tmp_path, "--output", "json", capsys=capsys)
    assert code == 0
    assert {row["file"]: row["state"] for row in json.loads(out)} == {
        "ca.crt": "ends soon",
        "collector.crt": "ends soon",
    }
