"""What operators get wrong, and the sentence that each mistake gets: exit code 2, the key, the value, what is right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowjoin.__main__ import main

COLLECTORS = "a mapping with the keys protocol, address, tls, reusePort"
API = "apiServer: {address: none, tls: selfSigned"
MISTAKES = {
    "shutdownGracePeriod: 30": '1: shutdownGracePeriod: "30" has no unit; write a duration such as 30s, 1m30s or 250ms',
    "shutdownGracePeriod: 1d": '1: shutdownGracePeriod: "1d" has the unknown unit "d"; a day is 24h',
    "shutdownGracePeriod: -5s": "1: shutdownGracePeriod: must be a duration such as 30s or 1m30s, at least 0s, "
    'not "-5s"',
    "limits: {stringBytes: 512Mi}": '1: limits.stringBytes: "512Mi" has the unknown unit "Mi"; did you mean MiB?',
    "limits: {stringBytes: 512X}": '1: limits.stringBytes: "512X" has the unknown unit "X"; the units are KiB, MiB, '
    "GiB, TiB, kB, MB, GB and TB",
    'limits: {flows: "5"}': '1: limits.flows: must be a whole number from 1 to 2147483647, not "5"; leave the quotes '
    "out",
    "limits: {flows: many}": '1: limits.flows: must be a whole number from 1 to 2147483647, not "many"',
    'recordContents: {podLabels: "yes"}': '1: recordContents.podLabels: must be true or false, not "yes"; leave the '
    "quotes out",
    "log: {level: warn}": '1: log.level: must be debug, info, warning or error, not "warn"; did you mean "warning"?',
    "limits:\n\tflows: 5": "2: not valid YAML: a tab stands where only spaces may; write spaces",
    "limits:\n flows: 5\n  sessions: 5": "3: not valid YAML: a colon stands where none may; begin the keys of one "
    'mapping in one column, and put a text with ": " in it in quotes',
    "limits: {}\ncollectors: [\n {protocol: udp}": "4: not valid YAML: while parsing a flow sequence that begins on "
    "line 2, expected ',' or ']', but got '<stream end>'",
    "mode: Proxy\nmode: Proxy": '2: the key "mode" is given twice, on lines 1 and 2',
    "mode: Proxy\n---\nmode: Proxy": "2: a second document begins here; one file holds one document",
    "- mode": "1: the file must hold keys and values, as in 'mode: Aggregate'",
    "collectors: udp": f'1: collectors: must be a list, each item {COLLECTORS}, not "udp"',
    "collectors: [{}]": "1: collectors[0].protocol: is missing; give udp, tcp or tls (what IPFIX comes over)",
    "collectors: [{protocol: udp, address: '[::]:99999'}]": '1: collectors[0].address: "[::]:99999" has the port '
    "99999; a port is from 0 to 65535",
    "collectors: [{protocol: udp, address: '256.1.1.1:4739'}]": '1: collectors[0].address: "256.1.1.1" is neither an '
    "address nor a host name",
    "collectors: [{protocol: udp, address: 4739}]": '1: collectors[0].address: "4739" is not host:port; write text '
    'such as "[::]:4739" or "192.0.2.1:4739"',
    "collectors: [{protocol: tcp, tls: {certificate: c, key: k}}]": "1: collectors[0].tls: is given and the protocol "
    'is tcp; write "protocol: tls" or leave it out',
    f"{API}, tlsMinVersion: TLS1.2}}": '1: apiServer.tlsMinVersion: "TLS1.2" is no version of TLS; write VersionTLS12 '
    "or VersionTLS13",
    'apiServer: {tls: selfSigned, tlsCipherSuites: "RC5"}': "1: apiServer.tlsCipherSuites: OpenSSL has no cipher in "
    '"RC5"; write one such as ECDHE-RSA-AES128-GCM-SHA256',
    "apiServer: {tls: yes}": "1: apiServer.tls: must be a mapping with the keys certificate, key, clientCA, or "
    'selfSigned or none, not "yes"',
    "stateDirectory: /dev/null/flowjoin": "1: stateDirectory: /dev/null is no directory; give the path of one, which "
    "may not be there yet",
    "exporters: [{type: log, path: f, spool: {sync: 0s}}]": "1: exporters[0].spool.sync: must be longer than 0; write "
    "batch to sync after each batch",
    "exporters: [{type: ipfix, address: '192.0.2.256'}]": '1: exporters[0].address: "192.0.2.256" is neither an '
    "address nor a host name",
    "sources: [{type: conntrack, serviceCIDRs: [10.0.0.0/8, 10.96.0.1/12]}]": "1: sources[0].serviceCIDRs[1]: "
    '"10.96.0.1/12" is no network; write one such as 10.96.0.0/12',
    "flowExporter: {enable: true, flowCollectorAddr: 'h:4739:tpc'}": "1: flowExporter.flowCollectorAddr: connection "
    'over tpc transport proto is not supported; did you mean "tcp"?',
}
PASSWORDS = [
    "clusterID: *hunter2",
    "clusterID: !hunter2 x",
    "clusterID: @hunter2",
    "apiServer: {token: hunter2}",
    "apiServer: {token: {hunter2: x}}",
    "exporters: [{type: ipfix, address: 'me:hunter2@h:4739'}]",
    "exporters: [{type: clickhouse, databaseURL: 'tcp://me:hunter2@h:9000'}]",
    "exporters: [{type: clickhouse, databaseURL: 'http://h', password: hunter2}]",
    "exporters: [{type: s3, bucketName: flows, endpointURL: 'https://me:hunter2@h'}]",
    "exporters: [{type: s3, bucketName: flows, accessKeyID: hunter2, secretAccessKey: hunter2}]",
    "lookups: [{type: policy_rules, url: 'https://me:hunter2@h/x y'}]",
    "lookups: [{type: policy_rules, url: 'https://h/', token: hunter2}]",
    "collectors: [{protocol: udp, address: 'me:hunter2@h:4739'}]",
    "flowCollector: {enable: true, address: 'me:hunter2@h:4739'}",
    "flowExporter: {enable: true, flowCollectorAddr: 'tls://me:hunter2@h:4739'}",
    "clickHouse: {enable: true, databaseURL: 'tcp://me:hunter2@h:9000'}",
]


def refused(octets: bytes, file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    file.write_bytes(octets)
    assert main(["check", "-c", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[-1].replace(str(file), "F")


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_sentence(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(f"{text}\n".encode(), tmp_path / "f.conf", capsys) == f"flowjoin: F:{MISTAKES[text]}"


@pytest.mark.parametrize("text", PASSWORDS)
def test_no_sentence_repeats_what_may_be_a_password(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = refused(f"{text}\n".encode(), tmp_path / "f.conf", capsys)
    assert "hunter2" not in sentence
    assert "F:1: " in sentence


@pytest.mark.parametrize(
    ("octets", "sentence"),
    [
        (b"\x7fELF\x02\xff\xfe", "F:1: is not UTF-8 text; save it as UTF-8"),
        ("mode: Proxy\n".encode("utf-16"), "F:1: is not UTF-8 text; save it as UTF-8"),
        (b"mode: Proxy\0\n", "F:1: the character U+0000 is not allowed in YAML"),
        (b"a: [" + b"1," * 100_000 + b"]\n", "F:1: more than 100000 values"),
        (b"#" * (1024 * 1024 + 1), "F: the file is larger than 1048576 characters"),
    ],
    ids=["binary", "UTF-16", "NUL", "many values", "large"],
)
@pytest.mark.slow
def test_what_is_no_configuration_at_all_is_one_sentence(
    octets: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(octets, tmp_path / "f.conf", capsys) == f"flowjoin: {sentence}"


def test_a_secrets_file_that_cannot_be_read_is_a_warning_and_a_variable_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.conf"
    file.write_text(
        """
apiServer: {token: {file: HERE/absent}}
exporters:
  - type: clickhouse
    databaseURL: http://h
    password:
      file: HERE/absent
    username: {env: FLOWJOIN_ABSENT}
  - {type: s3, bucketName: flows, accessKeyID: {env: FLOWJOIN_ABSENT}, secretAccessKey: {file: HERE/key}}
""".replace("HERE", str(tmp_path)),
        encoding="utf-8",
    )
    (tmp_path / "key").write_text("a key")
    assert main(["check", "-c", str(file)]) == 0
    problem = f"the file {tmp_path}/absent of a secret cannot be read: No such file or directory"
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("warning: ")] == [
        f"warning: {file}:2: apiServer.token: {problem}",
        f"warning: {file}:6: exporters[0].password: {problem}",
    ]


def test_a_state_directory_that_is_not_there_yet_or_may_not_be_seen_is_left_to_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000 if os.geteuid() else 0o700)
    for place in (tmp_path / "a" / "b", closed / "c"):
        file = tmp_path / "f.conf"
        file.write_text(f"stateDirectory: {place}\n", encoding="utf-8")
        assert main(["check", "-c", str(file)]) == 0
