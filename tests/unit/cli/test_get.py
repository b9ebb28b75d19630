from __future__ import annotations

import pytest

from flowjoin.__main__ import main


@pytest.mark.parametrize("option", ["--srcip", "--dstip"])
def test_what_is_no_address_is_a_usage_error(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "flowrecords", option, "10.0.0"]) == 2
    assert f"argument {option}: '10.0.0' is no address" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--srcip", ""), ("--srcip", "2001:db8::1", "--dstip", "10.0.0.1")])
def test_an_address_or_none_is_good(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "flowrecords", *arguments, "--server", "127.0.0.1:1"]) == 1  # nobody answers there
    assert "nobody answers at 127.0.0.1:1" in capsys.readouterr().err
