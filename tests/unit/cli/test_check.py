from __future__ import annotations

from pathlib import Path

import certificates
import pytest

from flowjoin.__main__ import main

GOOD = "collectors: [{protocol: udp}]\n"
TLS = """
collectors:
  - protocol: tls
    tls:
      certificate: D/server.crt
      key: D/server.key
      clientCA: D/client-ca.crt
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "flow.conf"


def checked(file: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = main(["check", "-c", str(file), *options])
    captured = capsys.readouterr()
    return code, captured.out.replace(str(file), "F"), captured.err.replace(str(file), "F")


def test_a_good_file_is_good(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD, encoding="utf-8")
    assert checked(file, capsys) == (
        0,
        "F: good\n",
        "info: F: No collector / sink has been configured, so no flow data will be exported\n",
    )


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode() + b"mode: Proxy\r\n")
    assert checked(file, capsys)[:2] == (0, "F: good\n")


def test_an_unknown_key_of_antreas_warns_and_fails_when_strict(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD + "mod: Proxy\n", encoding="utf-8")
    code, out, err = checked(file, capsys)
    assert (code, out) == (0, "F: good\n")
    assert err.startswith('warning: F:2: mod: is not a known key; did you mean "mode"?; ignored\n')
    assert checked(file, capsys, "--strict") == (
        2,
        "",
        'flowjoin: F:2: mod: is not a known key; did you mean "mode"?\n',
    )


@pytest.mark.parametrize(
    ("octets", "sentence"),
    [
        (
            b"flowAggregatorAddress: a b\n",
            'F:1: flowAggregatorAddress: "a b" is neither an address nor a DNS name',
        ),
        (b"limits: {flow: 1}\n", 'F:1: limits.flow: is not a known key; did you mean "flows"?'),
        (b"mode: Proxy\nclusterID: \xff\n", "F:2: is not UTF-8 text; save it as UTF-8"),
        (
            b"collectors: [{protocol: udp}]\nrecordContents: {elements: [bgpSourceAsNumbr]}\n",
            'F:2: recordContents.elements[0]: no element is named "bgpSourceAsNumbr"; '
            'did you mean "bgpSourceAsNumber"?',
        ),
    ],
)
def test_a_file_that_cannot_be_run_is_exit_code_2_and_a_sentence(
    file: Path, capsys: pytest.CaptureFixture[str], octets: bytes, sentence: str
) -> None:
    file.write_bytes(octets)
    code, out, err = checked(file, capsys)
    assert (code, out, err.splitlines()[-1]) == (2, "", f"flowjoin: {sentence}")


def test_a_plugin_that_is_not_installed_is_named_with_those_that_are(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(GOOD + "exporters:\n  - type: no-such-plugin\n", encoding="utf-8")
    code, _, err = checked(file, capsys)
    assert code == 2
    (sentence,) = err.splitlines()[-1:]
    assert sentence.startswith("flowjoin: plugin 'no-such-plugin': is not installed; installed: ")
    assert "(flowjoin plugins shows more); if there is such a plugin" in sentence
    assert sentence.endswith(" (named at F:3: exporters[0])")


def test_a_missing_file_and_a_directory_are_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path / "gone", capsys) == (2, "", "flowjoin: F: cannot be read: No such file or directory\n")
    assert checked(tmp_path, capsys) == (2, "", "flowjoin: F: cannot be read: Is a directory\n")
    assert main(["check", "-c", "a\0b"]) == 2


def test_a_file_without_end_is_not_read_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", "/dev/zero"]) == 2
    assert capsys.readouterr().err == "flowjoin: /dev/zero: the file is larger than 1048576 characters\n"


def test_certificates_that_fit_are_good(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificates.server_files(tmp_path)
    file.write_text(TLS.replace("D/", f"{tmp_path}/"), encoding="utf-8")
    code, out, err = checked(file, capsys)
    assert (code, out) == (0, "F: good\n")
    assert "collectors" not in err


@pytest.mark.parametrize(
    ("name", "octets", "sentence"),
    [
        (
            "server.key",
            None,
            "F:6: collectors[0].tls.key: D/server.key cannot be read: No such file or directory; "
            "give the path of a PEM file",
        ),
        (
            "server.key",
            certificates.server(serial=1).key,
            "F:6: collectors[0].tls.key: D/server.key does not belong to the certificate; "
            "in a chain the server's own one comes first",
        ),
        (
            "client-ca.crt",
            b"hello",
            "F:7: collectors[0].tls.clientCA: D/client-ca.crt holds no PEM and no certificate; "
            "give one that begins BEGIN CERTIFICATE",
        ),
    ],
)
def test_certificates_that_do_not_fit_are_exit_code_2_and_a_sentence(
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    octets: bytes | None,
    sentence: str,
) -> None:
    certificates.server_files(tmp_path)
    if octets is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(octets)
    file.write_text(TLS.replace("D/", f"{tmp_path}/"), encoding="utf-8")
    code, out, err = checked(file, capsys)
    assert (code, out, err.splitlines()[-1].replace(str(tmp_path), "D")) == (2, "", f"flowjoin: {sentence}")


def test_an_expired_certificate_is_a_warning_because_other_collectors_work_on(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates.server_files(tmp_path, certificates.server(is_expired=True))
    file.write_text(TLS.replace("D/", f"{tmp_path}/"), encoding="utf-8")
    code, _, err = checked(file, capsys)
    assert code == 0
    assert "warning: F:5: collectors[0].tls.certificate: " in err
    assert "server.crt expired on " in err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            None,
            "F:1: lookups[0].path: L cannot be read: No such file or directory; give the path of a YAML or JSON file",
        ),
        ("pods:\n  - {namespace: shop}\n", "L:2: pods[0].name: is missing; give text"),
        ("nodes: [{name: a, adresses: []}]", 'L:1: nodes[0].adresses: is not a known key; did you mean "addresses"?'),
        ("pods: \xff", "L:1: is not UTF-8 text; save it as UTF-8"),
    ],
)
def test_a_look_up_file_that_cannot_be_used_is_named(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, sentence: str
) -> None:
    table = tmp_path / "cluster.yaml"
    if content is not None:
        table.write_text(content, encoding="latin-1")
    file.write_text(f"lookups: [{{type: file, path: {table}}}]\nsources: []\n", encoding="utf-8")
    code, out, err = checked(file, capsys)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].replace(str(table), "L") == f"flowjoin: {sentence}"


def test_a_filter_that_names_no_action_is_told_for_antreas_section_and_for_ours(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filters = "filters: [{ingressNetworkPolicyRuleActions: [Dropp]}]"
    file.write_text(
        f"flowLogger: {{enable: true, {filters}}}\nexporters: [{{type: log, name: b, path: /b, {filters}}}]\n",
        encoding="utf-8",
    )
    code, out, err = checked(file, capsys)
    problem = '"Dropp" is no action and never matches; did you mean "Drop"?'
    assert (code, out) == (0, "F: good\n")
    assert [line for line in err.splitlines() if "Dropp" in line] == [
        f"warning: F:1: flowLogger.filters[0].ingressNetworkPolicyRuleActions[0]: {problem}",
        f"warning: F:2: exporters[0].filters[0].ingressNetworkPolicyRuleActions[0]: {problem}",
    ]
