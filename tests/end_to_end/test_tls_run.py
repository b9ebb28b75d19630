"""``flowjoin run`` with certificates of its own, and everything that sends to it over TLS."""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def flowjoin(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flowjoin", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def keys_of(rows: list[str]) -> set[tuple[str, ...]]:
    """Addresses, ports and protocol: a flow may be exported more than once, and over a broken connection sent again."""
    return {tuple(row.split(",")[2:7]) for row in rows}


def configured(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_without_files_it_makes_an_authority_and_exporters_with_what_it_publishes_are_let_in(run, tmp_path):
    pytest.importorskip("flowjoin_log", reason="flowjoin-log is not installed")
    file = configured(
        tmp_path / "f.yaml",
        f"""
stateDirectory: {tmp_path}/state
collectors: [{{protocol: tls, address: "127.0.0.1:0"}}]
apiServer: {{address: none}}
exporters: [{{type: log, path: {tmp_path}/flows.csv}}]
""",
    )
    program = run("-c", str(file))
    address = program.wait_line("ready")["addresses"][0].rpartition("/")[2]
    if "certificate_replaced" not in program.text:  # the two come in any order
        program.wait_line("certificate_replaced")
    pki = tmp_path / "state" / "certificates"
    traffic = ("--flows", 300, "--seed", 7, "--output", "json")
    stranger = flowjoin("generate", "--to", f"tls://{address}", "--ca", pki / "ca.crt", *traffic)
    assert stranger.returncode == 1
    assert stranger.stderr.startswith(f"flowjoin: {address} closed the connection ")
    done = flowjoin(
        "generate", "--to", f"tls://{address}", "--ca", pki / "ca.crt", "--certificate", pki / "client.crt",
        "--key", pki / "client.key", *traffic,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    totals = json.loads(done.stdout)
    program.process.send_signal(signal.SIGTERM)
    assert program.finish() == 0, program.text
    rows = (tmp_path / "flows.csv").read_text(encoding="utf-8").splitlines()
    assert len(keys_of(rows)) == totals["flows"]
    assert "tls_certificate_missing" in program.text


def test_our_own_exporter_delivers_over_mutual_tls_every_flow(run, tmp_path):
    pytest.importorskip("flowjoin_ipfix", reason="flowjoin-ipfix is not installed")
    pytest.importorskip("flowjoin_log", reason="flowjoin-log is not installed")
    pki = tmp_path / "pki"
    for arguments in (
        ("init", pki),
        ("issue", pki, "--server", "localhost", "--san", "127.0.0.1"),
        ("issue", pki, "--client", "edge-1"),
    ):
        assert flowjoin("certs", *arguments).returncode == 0
    centre = configured(
        tmp_path / "centre.yaml",
        f"""
stateDirectory: {tmp_path}/centre
mode: Proxy
collectors:
  - protocol: tls
    address: "127.0.0.1:0"
    tls: {{certificate: {pki}/localhost.crt, key: {pki}/localhost.key, clientCA: {pki}/ca.crt}}
apiServer: {{address: none}}
exporters: [{{type: log, path: {tmp_path}/flows.csv}}]
""",
    )
    receiving = run("-c", str(centre))
    address = receiving.wait_line("ready")["addresses"][0].rpartition("/")[2]
    edge = configured(
        tmp_path / "edge.yaml",
        f"""
stateDirectory: {tmp_path}/edge
collectors: [{{protocol: tcp, address: "127.0.0.1:0"}}]
apiServer: {{address: none}}
exporters:
  - type: ipfix
    address: {address}
    protocol: tls
    tls: {{ca: {pki}/ca.crt, certificate: {pki}/edge-1.crt, key: {pki}/edge-1.key}}
""",
    )
    sending = run("-c", str(edge))
    to = sending.wait_line("ready")["addresses"][0].rpartition("/")[2]
    done = flowjoin("generate", "--to", f"tcp://{to}", "--flows", 200, "--output", "json")
    assert done.returncode == 0, done.stderr
    sending.process.send_signal(signal.SIGTERM)
    assert sending.finish() == 0, sending.text
    receiving.process.send_signal(signal.SIGTERM)
    assert receiving.finish() == 0, receiving.text
    assert "edge-1" in receiving.text, "the identity of the exporter"
    rows = (tmp_path / "flows.csv").read_text(encoding="utf-8").splitlines()
    assert len(keys_of(rows)) == json.loads(done.stdout)["flows"]


def test_the_http_api_is_asked_from_outside_over_tls_with_a_token_or_a_certificate(run, tmp_path):
    pki = tmp_path / "pki"
    for arguments in (
        ("init", pki),
        ("issue", pki, "--server", "localhost", "--san", "127.0.0.1"),
        ("issue", pki, "--client", "admin"),
    ):
        assert flowjoin("certs", *arguments).returncode == 0
    token = configured(tmp_path / "token", "right\n")
    file = configured(
        tmp_path / "f.yaml",
        f"""
stateDirectory: {tmp_path}/state
collectors: [{{protocol: tcp, address: "127.0.0.1:0"}}]
apiServer:
  address: "0.0.0.0:0"
  tls: {{certificate: {pki}/localhost.crt, key: {pki}/localhost.key, clientCA: {pki}/ca.crt}}
  token: {{file: {token}}}
""",
    )
    assert flowjoin("check", "-c", file).returncode == 0
    program = run("-c", str(file))
    port = program.wait_line("api_ready")["addresses"][0].rpartition(":")[2]
    collector = program.wait_line("ready")["addresses"][0].rpartition("/")[2]
    server = ("--server", f"https://localhost:{port}", "--ca", pki / "ca.crt")
    with_token = (*server, "--token-file", token)
    with_certificate = (*server, "--certificate", pki / "admin.crt", "--key", pki / "admin.key")
    assert flowjoin("generate", "--to", f"tcp://{collector}", "--flows", 20, "--output", "json").returncode == 0
    for shown in (with_token, with_certificate):
        done = flowjoin("get", "flowrecords", *shown, "--output", "json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
        assert flowjoin("top", "--once", "--interval", 0.1, "--output", "json", *shown).returncode == 0
        for level in ("debug", "info"):
            assert flowjoin("log-level", level, *shown).returncode == 0
            assert flowjoin("log-level", *shown).stdout.split()[-1] == level
    refused = flowjoin("get", "recordmetrics", *server)
    assert refused.returncode == 1
    assert refused.stderr == (
        "flowjoin: say who you are: send a bearer token, or show a certificate; "
        "write --token-file FILE, or --certificate FILE and --key FILE\n"
    )
    wrong = configured(tmp_path / "wrong", "wrong")
    assert "this bearer token is nobody's" in flowjoin("get", "recordmetrics", *server, "--token-file", wrong).stderr
    stranger = flowjoin("get", "recordmetrics", "--server", f"https://localhost:{port}", "--token-file", token)
    assert "is not trusted" in stranger.stderr
    program.process.send_signal(signal.SIGTERM)
    assert program.finish() in (0, 1), program.text
    assert "right" not in program.text
    assert "wrong" not in program.text.replace("wrong_token", "")


def test_exported_flows_are_watched_from_outside_as_they_leave(run, tmp_path):
    file = configured(
        tmp_path / "f.yaml",
        f"""
stateDirectory: {tmp_path}/state
mode: Proxy
collectors: [{{protocol: tcp, address: "127.0.0.1:0"}}]
apiServer: {{address: "127.0.0.1:0", tls: selfSigned, token: {{file: {configured(tmp_path / "token", "right")}}}}}
""",
    )
    program = run("-c", str(file))
    port = program.wait_line("api_ready")["addresses"][0].rpartition(":")[2]
    collector = program.wait_line("ready")["addresses"][0].rpartition("/")[2]
    watch = (
        "get",
        "flowstream",
        "--server",
        f"https://127.0.0.1:{port}",
        "--insecure",
        "--token-file",
        tmp_path / "token",
    )
    watching = subprocess.Popen([sys.executable, "-m", "flowjoin", *map(str, watch)], stdout=subprocess.PIPE, text=True)
    try:
        said = selectors.DefaultSelector()  # select() knows no descriptor above 1023, and a long run of tests has more
        said.register(watching.stdout, selectors.EVENT_READ)
        for _ in range(30):  # until it watches, what is exported is not for it
            assert flowjoin("generate", "--to", f"tcp://{collector}", "--flows", 5, "--output", "json").returncode == 0
            if said.select(1):
                break
        said.close()
        flow = json.loads(watching.stdout.readline())
        assert flow["protocolIdentifier"] in (1, 6, 17, 58, 132)
    finally:
        watching.kill()
        watching.communicate()
    program.process.send_signal(signal.SIGTERM)
    program.finish()
