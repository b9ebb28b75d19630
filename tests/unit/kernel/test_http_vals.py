import pytest

from flowjoin._kernel.http_vals import merge_http_vals

V = '"{hostname:10.10.0.1,status:200}"'


@pytest.mark.parametrize(
    ("incoming", "stored", "expected"),
    [
        ('{"1":' + V + "}", '{"0":' + V + "}", '{"0":' + V + ',"1":' + V + "}"),
        ('{"1":' + V + "}", "", '{"1":' + V + "}"),
        ('{"1":' + V + "}", '{"1":' + V + "}", '{"1":' + V + "}"),
        ("", "", "{}"),
        ("", '{"3":{"status":200}}', '{"3":{"status":200}}'),
        ('{"1":"new"}', '{"1":"old"}', '{"1":"old"}'),
        ('{"10":1, "2":2}', '{"1":3}', '{"1":3,"10":1,"2":2}'),
        ('{"1":"<a>&b"}', "", '{"1":"\\u003ca\\u003e\\u0026b"}'),
        ('{"1":"é\u2028"}', "", '{"1":"é\\u2028"}'),
        ('{"-1":[null,true,1.5]}', "{}", '{"-1":[null,true,1.5]}'),
        ('{"1":"\\ud800"}', "", '{"1":"\ufffd"}'),
    ],
)
def test_objects_are_united_in_the_order_of_their_keys_as_text(incoming: str, stored: str, expected: str) -> None:
    assert merge_http_vals(incoming, stored) == (expected, True)


@pytest.mark.parametrize(
    "incoming",
    [
        "mockHttpString",
        "[1]",
        "{",
        '{"a":1}',
        '{"2147483648":1}',
        '{"1":NaN}',
        '{"1":1e999}',
        '{"1":' + "[" * 100_000,
        '{"1":' + "[" * 20_000 + "]" * 20_000 + "}",
        '{"1":' + "9" * 5_000 + "}",
    ],
)
def test_what_is_no_such_object_replaces_the_stored_text(incoming: str) -> None:
    assert merge_http_vals(incoming, '{"1":2}') == (incoming, False)


def test_no_text_grows_longer_than_a_string_can_be_sent() -> None:
    stored = '{"1":"' + "x" * 60_000 + '"}'
    incoming = '{"2":"' + "x" * 60_000 + '"}'
    assert merge_http_vals(incoming, stored) == (incoming, False)
