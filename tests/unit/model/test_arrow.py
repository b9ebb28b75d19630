"""The Arrow interface, seen by pyarrow and, where ownership is at stake, by a consumer of our own."""

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from array import array
from collections.abc import Iterator

import pytest
from batch_examples import OF_EACH_TYPE, ROWS, UUID, WIDE, schema_of
from hypothesis import given

from flowjoin._model import arrow_abi
from flowjoin._model.arrow_abi import ArrowArray, ArrowSchema
from flowjoin._model.columns import NumberColumn, PackedColumn
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.information_element import InformationElement

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

TIMES = {"aDateTimeSeconds": "s", "aDateTimeMilliseconds": "ms"}
TIMES |= {"aDateTimeMicroseconds": "us", "aDateTimeNanoseconds": "ns"}
BATCH = FlowBatch.from_rows(
    schema_of("sourceIPv4Address", "octetDeltaCount", "sourcePodName", "dataRecordsReliability", "flowEndSeconds"),
    [("192.0.2.1", 2**64 - 1, "web", True, 1_700_000_000), ("192.0.2.2", 0, "", False, 0)],
)


@pytest.fixture(autouse=True)
def nothing_is_left_unreleased() -> Iterator[None]:
    yield
    gc.collect()
    assert arrow_abi.held_count() == 0
    assert len(arrow_abi._capsules) == 0


def expected_type(element: InformationElement) -> object:
    name = element.data_type.value
    if element.name in TIMES:
        return pa.timestamp(TIMES[element.name], tz="UTC")
    if name.startswith(("unsigned", "signed")):
        return getattr(pa, name.replace("unsigned", "uint").replace("signed", "int"))()
    if element is UUID:
        return pa.binary(16)
    simple = {"float32": pa.float32(), "float64": pa.float64(), "boolean": pa.bool_()}
    texts = ("string", "ipv4Address", "ipv6Address", "macAddress")
    return simple.get(name) or pa.dictionary(pa.int32(), pa.string() if name in texts else pa.binary())


def test_every_data_type_has_its_arrow_type_without_nulls():
    schema = pa.schema(FlowBatch.from_rows(WIDE, []))
    assert schema.names == list(WIDE.names)
    for element in OF_EACH_TYPE:
        field = schema.field(element.name)
        assert field.type == expected_type(element), element.name
        assert not field.nullable


def plain(values: object) -> list[object]:
    """An arrow column as Python values like ours: times as numbers."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return values.to_pylist()


@given(ROWS)
def test_arrow_has_the_values_of_every_column(rows):
    batch = FlowBatch.from_rows(WIDE, rows)
    record_batch = pa.record_batch(batch)
    record_batch.validate(full=True)
    assert record_batch.num_rows == len(batch)
    for name in WIDE.names:
        values = batch.column(name).tolist()
        if name in TIMES:
            values = [min(value, 2**63 - 1) for value in values]
        assert list(map(repr, plain(record_batch.column(name)))) == list(map(repr, values)), name


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 64, 1000])
def test_booleans_become_bits(length):
    values = [index % 3 == 0 for index in range(length)]
    batch = FlowBatch.from_columns(schema_of("dataRecordsReliability"), {"dataRecordsReliability": values})
    table = pa.table(batch)
    table.validate(full=True)
    assert table.column(0).to_pylist() == values


def test_array_stream_and_schema_agree():
    table = pa.table(BATCH)
    assert table.schema == pa.schema(BATCH)
    assert table.to_batches() == [pa.record_batch(BATCH)]
    assert table.column("flowEndSeconds")[0].as_py().isoformat() == "2023-11-14T22:13:20+00:00"


def test_a_slice_gives_its_own_rows():
    rows = [(f"192.0.2.{n}", n, f"pod-{n}", n % 2 == 0, n) for n in range(20)]
    whole = FlowBatch.from_rows(BATCH.schema, rows)
    table = pa.table(whole.slice(3, 17))
    table.validate(full=True)
    assert table.column("octetDeltaCount").to_pylist() == list(range(3, 17))
    assert table.column("sourcePodName").to_pylist() == [f"pod-{n}" for n in range(3, 17)]
    assert table.column("sourceIPv4Address").to_pylist() == [f"192.0.2.{n}" for n in range(3, 17)]


def test_a_consumer_may_ask_for_another_schema():
    wanted = pa.schema([pa.field(name, pa.string()) for name in BATCH.schema.names[:1]])
    assert BATCH.__arrow_c_stream__(wanted.__arrow_c_schema__()) is not None
    table = pa.table(BATCH).select(["sourceIPv4Address"]).cast(wanted)
    assert table.column(0).to_pylist() == ["192.0.2.1", "192.0.2.2"]


def test_numbers_codes_and_octets_are_not_copied():
    batch = FlowBatch.from_rows(
        schema_of("octetDeltaCount", "sourcePodName", "sourcePodUUID"), [(1, "a", bytes(16)), (2, "b", bytes(16))]
    )
    counters, names, uuids = (batch.column(name) for name in batch.schema.names)
    taken = pa.record_batch(batch)
    assert taken.column(0).buffers()[1].address == arrow_abi.buffer_address(counters.buffer)
    assert taken.column(1).indices.buffers()[1].address == arrow_abi.buffer_address(names.codes)
    assert taken.column(2).buffers()[1].address == arrow_abi.buffer_address(uuids.buffer)


def test_numbers_across_word_boundaries_are_copied_to_one():
    element = BATCH.schema.registry.by_name("octetDeltaCount")
    octets = memoryview(b"\0" + array("Q", [1, 2, 3]).tobytes())
    batch = FlowBatch(schema_of("octetDeltaCount"), [NumberColumn(element, octets[1:])])
    values = pa.record_batch(batch).column(0)
    assert values.buffers()[1].address % 8 == 0
    assert values.to_pylist() == [1, 2, 3]


def test_values_outlive_the_batch():
    batch = FlowBatch.from_rows(BATCH.schema, list(BATCH.rows()))
    table = pa.table(batch)
    column = table.column("sourcePodName")
    del batch, table
    gc.collect()
    [bytearray(64) for _ in range(1000)]
    assert column.to_pylist() == ["web", ""]


def test_a_buffer_is_freed_with_the_last_consumer():
    class Octets(bytearray):
        pass

    octets, freed = Octets(4), []
    batch = FlowBatch(
        schema_of("sourceIPv4Address", "octetDeltaCount"),
        [
            PackedColumn(BATCH.schema.elements[0], octets),
            NumberColumn(BATCH.schema.elements[1], bytes(8)),
        ],
    )
    weakref.finalize(octets, freed.append, True)
    del octets
    column = pa.record_batch(FlowBatch(batch.schema, [*map(batch.column, batch.schema.names)])).column(1)
    del batch
    gc.collect()
    assert freed == [True], "addresses are text in Arrow, so their octets go"
    assert column.to_pylist() == [0]
    assert arrow_abi.held_count() > 0
    del column
    gc.collect()
    assert arrow_abi.held_count() == 0


@pytest.mark.parametrize("method", ["__arrow_c_array__", "__arrow_c_stream__", "__arrow_c_schema__"])
def test_capsules_that_nobody_takes_release_everything(method):
    capsules = getattr(BATCH, method)()
    assert arrow_abi.held_count() > 0
    del capsules
    gc.collect()
    assert arrow_abi.held_count() == 0


def test_capsules_that_nobody_takes_go_at_the_next_export_without_the_collector():
    gc.disable()
    try:
        BATCH.__arrow_c_stream__()
        held = arrow_abi.held_count()
        for _ in range(10):
            BATCH.__arrow_c_stream__()
        assert arrow_abi.held_count() == held
    finally:
        gc.enable()


def test_the_collector_is_left_alone_again():
    capsules = BATCH.__arrow_c_array__()
    watchers = len(gc.callbacks)
    del capsules
    gc.collect()
    assert len(gc.callbacks) == watchers - 1


@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__arrow_c_schema__"])
def test_a_capsule_may_go_while_an_exception_is_under_way(method):
    for _ in range(3):
        with pytest.raises(TypeError, match="has no len"):
            len(getattr(BATCH, method)())  # its argument goes before the exception is caught


def test_an_exception_that_takes_a_table_with_it_leaks_nothing_and_is_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))
    with pytest.raises((KeyError, SystemError)) as caught:
        pa.table(BATCH)["typo"]
    gc.collect()
    assert arrow_abi.held_count() == 0
    assert any(isinstance(error, KeyError) for error in (*reported, caught.value))


def test_capsules_that_a_consumer_refuses_are_released():
    class Swapped:
        def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, ...]:
            return BATCH.__arrow_c_array__()[::-1]

    with pytest.raises(ValueError):
        pa.record_batch(Swapped())


def test_a_stream_left_after_its_schema_releases_its_rows():
    reader = pa.RecordBatchReader.from_stream(BATCH)
    assert reader.schema.names == list(BATCH.schema.names)
    del reader
    gc.collect()
    assert arrow_abi.held_count() == 0


def test_a_stream_read_to_its_end_stays_at_its_end():
    reader = pa.RecordBatchReader.from_stream(BATCH)
    assert reader.read_next_batch().num_rows == 2
    for _ in range(2):
        with pytest.raises(StopIteration):
            reader.read_next_batch()


def test_a_schema_that_finds_no_memory_is_an_error_of_the_stream():
    class Exhausted:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            def make_schema() -> ArrowSchema:
                raise MemoryError

            return arrow_abi.stream_capsule(make_schema, ArrowArray.make(0))

    with pytest.raises((OSError, MemoryError)):
        pa.RecordBatchReader.from_stream(Exhausted())


def pointer_of(capsule: object, name: bytes) -> int:
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return get(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, name)


def release(structure: ctypes.Structure) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(structure.release)(ctypes.addressof(structure))


@pytest.mark.parametrize("first", ["parent", "child"])
def test_a_child_moved_out_lives_on_its_own(first):
    capsule = BATCH.__arrow_c_array__()[1]
    parent = ArrowArray.from_buffer_copy(
        ctypes.string_at(pointer_of(capsule, b"arrow_array"), ctypes.sizeof(ArrowArray))
    )
    ArrowArray.from_address(pointer_of(capsule, b"arrow_array")).release = None
    del capsule
    source = ArrowArray.from_address(ctypes.c_void_p.from_address(parent.children + 2 * 8).value)
    child = ArrowArray.from_buffer_copy(source)
    source.release = None
    before = arrow_abi.held_count()
    for structure in (parent, child) if first == "parent" else (child, parent):
        release(structure)
        assert structure.release is None
        assert arrow_abi.held_count() < before
    gc.collect()  # the capsule of the schema
    assert arrow_abi.held_count() == 0


def test_a_schema_says_what_each_field_is():
    capsule = BATCH.__arrow_c_schema__()
    schema = ArrowSchema.from_address(pointer_of(capsule, b"arrow_schema"))
    assert (schema.format, schema.n_children) == (b"+s", 5)
    pointers = (ctypes.c_void_p * 5).from_address(schema.children)
    fields = [ArrowSchema.from_address(pointer) for pointer in pointers]
    assert [field.name.decode() for field in fields] == list(BATCH.schema.names)
    assert [field.format for field in fields] == [b"i", b"L", b"i", b"b", b"tss:UTC"]


def test_consumers_in_other_threads_release_too():
    def consume() -> None:
        for _ in range(50):
            assert pa.table(BATCH).num_rows == 2
            BATCH.__arrow_c_array__()

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


PROGRAM = """
import sys
import pyarrow as pa
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin, FlowSchema
from flowjoin.wire.registry import default_registry
registry = default_registry()
elements = tuple(map(registry.by_name, ("sourcePodName", "octetDeltaCount")))
schema = FlowSchema(origin=FlowOrigin.PLAIN, family=AddressFamily.IPV4, elements=elements, registry=registry)
batch = FlowBatch.from_rows(schema, [("web", 1)])
table, capsule, stream = pa.table(batch), batch.__arrow_c_array__(), batch.__arrow_c_stream__()
reader = pa.RecordBatchReader.from_stream(batch)
sys.kept = table, capsule, stream, reader
pa.kept = pa.table(batch)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "import flowjoin._model.arrow_abi; del sys.modules['flowjoin._model.arrow_abi']"])
def test_consumers_may_live_until_the_interpreter_ends(end):
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM + end], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
