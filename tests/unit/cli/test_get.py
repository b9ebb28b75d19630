from __future__ import annotations

import pytest

from flowjoin.__main__ import main


@pytest.mark.parametrize("option", ["--srcip", "--dstip"])
def test_what_is_no_address_is_a_usage_error(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "flowrecords", option, "10.0.0"]) == 2
    assert f"argument {option}: '10.0.0' is no address" in capsys.readouterr().err
