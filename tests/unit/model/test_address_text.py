import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowjoin._model.address_text import ipv4_text, ipv6_text, mac_text, pack_ipv4, pack_ipv6, pack_mac

SPARSE = st.lists(st.sampled_from([0, 0, 0, 1, 0xFF, 0x10]), min_size=16, max_size=16).map(bytes)


@given(st.binary(min_size=4, max_size=4))
def test_ipv4_text_is_what_ipaddress_writes_and_packs_back(packed):
    text = ipv4_text(packed)
    assert text == str(ipaddress.IPv4Address(packed))
    assert pack_ipv4(text) == packed


@given(SPARSE | st.binary(min_size=16, max_size=16))
def test_ipv6_text_is_what_ipaddress_writes_but_for_mapped_ones_and_packs_back(packed):
    text = ipv6_text(packed)
    address = ipaddress.IPv6Address(packed)
    assert text == (f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address))
    assert pack_ipv6(text) == packed


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000000000001", "::1"),
        ("20010db8000000000000000000000000", "2001:db8::"),
        ("20010db8000000010001000100010001", "2001:db8:0:1:1:1:1:1"),  # RFC 5952 section 4.2.2
        ("20010000000000010000000000000001", "2001:0:0:1::1"),  # section 4.2.3: the longest run
        ("20010db8000000000001000000000001", "2001:db8::1:0:0:1"),  # section 4.2.3: the first of equals
        ("00100000000000000000000000000010", "10::10"),
        ("00000000000000000000ffffc0000201", "::ffff:192.0.2.1"),
        ("0064ff9b0000000000000000c0000201", "64:ff9b::c000:201"),
    ],
)
def test_ipv6_text_follows_rfc_5952(packed, text):
    assert ipv6_text(bytes.fromhex(packed)) == text


@given(st.text(alphabet="0123456789.x٣ ", max_size=16))
def test_pack_ipv4_takes_what_ipaddress_takes(text):
    try:
        expected = ipaddress.IPv4Address(text).packed
    except ValueError:
        with pytest.raises(ValueError, match="is not an IPv4 address"):
            pack_ipv4(text)
    else:
        assert pack_ipv4(text) == expected


@given(
    st.lists(st.sampled_from([":", "::", "0", "1", "fF", "ABCD", "12345", "1.2.3.4", "g", " "]), max_size=17).map(
        "".join
    )
)
def test_pack_ipv6_takes_what_ipaddress_takes(text):
    try:
        expected = ipaddress.IPv6Address(text).packed
    except ValueError:
        with pytest.raises(ValueError, match="is not an IPv6 address"):
            pack_ipv6(text)
    else:
        assert pack_ipv6(text) == expected


@pytest.mark.parametrize(
    "text",
    ["1:2:3:4:5:6:7:8", "1:2:3:4:5:6:1.2.3.4", "::", "1::", "::1.2.3.4", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "A::b"],
)
def test_pack_ipv6_takes_every_spelling(text):
    assert pack_ipv6(text) == ipaddress.IPv6Address(text).packed


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", ":::", "1", "1:", ":1", "::1:", "1::2::3", "12345::", "fe80::1%eth0"),
        *("1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4::5:6:7:8"),
        *("1.2.3.4::", "1.2.3.4:1:2:3:4:5:6", "::1.2.3", "::01.2.3.4", "::1.2.3.4\n"),
    ],
)
def test_pack_ipv6_refuses_anything_else(text):
    with pytest.raises(ValueError, match="is not an IPv6 address"):
        pack_ipv6(text)


@pytest.mark.parametrize("text", ["", "1.2.3", "1.2.3.4.5", "256.0.0.1", "01.2.3.4", "1.2.3.4\n", " 1.2.3.4", "1..2.3"])
def test_pack_ipv4_refuses_anything_else(text):
    with pytest.raises(ValueError, match="is not an IPv4 address"):
        pack_ipv4(text)


def test_mac_text_is_lower_case_with_colons_and_packs_back():
    assert mac_text(b"\x00\x1b\xab\xcd\xef\x09") == "00:1b:ab:cd:ef:09"
    assert pack_mac("00:1B:ab:cd:EF:09") == b"\x00\x1b\xab\xcd\xef\x09"


@pytest.mark.parametrize(
    "text", ["", "00:1b:ab:cd:ef", "00-1b-ab-cd-ef-09", "001babcdef09", "00:1b:ab:cd:ef:0g", "00:1b:ab:cd:ef:09\n"]
)
def test_pack_mac_refuses_anything_else(text):
    with pytest.raises(ValueError, match="is not a MAC address"):
        pack_mac(text)
