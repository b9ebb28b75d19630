"""The Arrow C data and stream interfaces in ctypes, and who owns what.

Strategy: whatever a structure points to (texts, buffers, structures below it) hangs in ``_held`` under the
number in its ``private_data`` until its release callback is called with the structure, wherever a consumer
has moved it by then. A structure below has a number of its own, because a consumer may move it out.

A capsule's structure hangs in ``_capsules`` beside the capsule; both go, and what no consumer took is
released, when nobody else has the capsule any more: looked at after each run of the garbage collector and
before the next export. A destructor in Python would do it at once, and would replace any exception that is
under way while the capsule goes.

Invariant: each number leaves ``_held`` exactly once.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

__all__ = [
    "ArrowArray",
    "ArrowSchema",
    "array_capsule",
    "buffer_address",
    "held_count",
    "schema_capsule",
    "stream_capsule",
]


class ArrowSchema(ctypes.Structure):
    """A type, or a field of that type that is never null."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_char_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )

    @classmethod
    def make(
        cls, form: str, name: str = "", children: Sequence[ArrowSchema] = (), dictionary: ArrowSchema | None = None
    ) -> ArrowSchema:
        """A schema that owns the schemas below it."""
        texts = (form.encode(), name.encode())
        schema = cls(*texts)
        _adopt(schema, children, dictionary, texts)
        schema.release = _RELEASE_SCHEMA
        return schema


class ArrowArray(ctypes.Structure):
    """Values without a null."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.c_void_p),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )

    @classmethod
    def make(
        cls,
        length: int,
        buffers: Sequence[memoryview] = (),
        children: Sequence[ArrowArray] = (),
        dictionary: ArrowArray | None = None,
    ) -> ArrowArray:
        """An array that owns the arrays below it and keeps its buffers (after the validity bitmap it has not)."""
        pointers = (ctypes.c_void_p * (1 + len(buffers)))(None, *map(buffer_address, buffers))
        array = cls(length, 0, 0, len(pointers), 0, ctypes.addressof(pointers))
        _adopt(array, children, dictionary, (pointers, buffers))
        array.release = _RELEASE_ARRAY
        return array


class _ArrowStream(ctypes.Structure):
    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def schema_capsule(schema: ArrowSchema) -> object:
    """The schema for a consumer to take."""
    return _capsule(schema, _SCHEMA_NAME)


def array_capsule(array: ArrowArray) -> object:
    """The array for a consumer to take."""
    return _capsule(array, _ARRAY_NAME)


def stream_capsule(make_schema: Callable[[], ArrowSchema], array: ArrowArray) -> object:
    """A stream of one array, made already, so that little can fail once a consumer has the stream."""
    number = _hold((make_schema, [array]))
    stream = _ArrowStream(_GET_SCHEMA, _GET_NEXT, _GET_LAST_ERROR, _RELEASE_STREAM, number)
    return _capsule(stream, _STREAM_NAME)


def held_count() -> int:
    """How many structures no consumer has released yet."""
    return len(_held)


def buffer_address(buffer: memoryview) -> int | None:
    """Where the octets are; the memoryview keeps them there."""
    view = _PyBuffer()
    _get_buffer(buffer, ctypes.byref(view), 0)
    _release_buffer(ctypes.byref(view))
    address: int | None = view.buf
    return address


_Structure: TypeAlias = ArrowSchema | ArrowArray | _ArrowStream

_held: Final[dict[int, Any]] = {}
_capsules: Final[dict[int, tuple[object, _Structure]]] = {}
_numbers: Final = itertools.count(1)


def _hold(owned: object) -> int:
    number = next(_numbers)
    _held[number] = owned
    return number


def _adopt(structure: Any, children: Sequence[Any], dictionary: _Structure | None, owned: Sequence[object]) -> None:
    pointers = (ctypes.c_void_p * len(children))(*map(ctypes.addressof, children))
    structure.n_children = len(children)
    structure.children = ctypes.addressof(pointers)
    structure.dictionary = None if dictionary is None else ctypes.addressof(dictionary)
    below = [*children] if dictionary is None else [*children, dictionary]
    structure.private_data = _hold((below, pointers, owned))


def _capsule(structure: _Structure, name: int) -> object:
    _end_capsules()
    capsule: object = _new_capsule(ctypes.addressof(structure), name, None)
    _capsules[next(_numbers)] = (capsule, structure)
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)
    return capsule


def _on_collection(phase: str, _information: dict[str, int]) -> None:
    if phase == "stop":
        _end_capsules()


def _end_capsules() -> None:
    for number in tuple(_capsules):
        entry = _capsules.get(number)
        if entry is None or sys.getrefcount(entry[0]) > _REFERENCES_OF_ENTRY:
            continue
        # Another thread, or a collection in between, may have been here too: one of them takes it.
        _, structure = _capsules.pop(number, (None, None))
        if structure is not None and structure.release is not None:  # else a consumer has moved it out
            _end_stream(structure) if isinstance(structure, _ArrowStream) else _release(structure)
    if not _capsules and _on_collection in gc.callbacks:
        gc.callbacks.remove(_on_collection)


def _references_of(entry: tuple[object, ...]) -> int:
    return sys.getrefcount(entry[0])


_REFERENCES_OF_ENTRY: Final = _references_of((object(),))


# What consumers call, from any thread; ctypes takes the GIL. The last call may come while the interpreter
# ends and modules are emptied, so releasing uses methods of objects only, no function of another module.


def _release(structure: Any) -> None:
    below, _, _ = _held.pop(structure.private_data)
    structure.release = None
    for child in below:
        if child.release is not None:  # else a consumer has moved it out
            _release(child)


def _end_stream(stream: Any) -> None:
    _, waiting = _held.pop(stream.private_data)
    stream.release = None
    for array in waiting:
        _release(array)


def _releaser(kind: type[_Structure], release: Callable[[Any], None]) -> Callable[[int], None]:
    def on_release(address: int) -> None:
        # ``table(batch)["typo"]`` releases the table while the KeyError is under way, and ctypes cannot keep
        # it so. Nothing leaks: the caller gets a SystemError, sys.unraisablehook the KeyError.
        pending: BaseException | None = None
        try:
            _raise_pending()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it goes on below
            pending = error
        release(kind.from_address(address))
        if pending is not None:
            raise pending

    return on_release


def _get_schema(address: int, target: int) -> int:
    make_schema, _ = _held[_ArrowStream.from_address(address).private_data]
    try:
        schema = make_schema()
    except MemoryError:
        return errno.ENOMEM
    ctypes.memmove(target, ctypes.addressof(schema), ctypes.sizeof(schema))
    return 0


def _get_next(address: int, target: int) -> int:
    _, waiting = _held[_ArrowStream.from_address(address).private_data]
    if waiting:
        array = waiting.pop()
        ctypes.memmove(target, ctypes.addressof(array), ctypes.sizeof(array))
    else:
        ctypes.memset(target, 0, ctypes.sizeof(ArrowArray))  # a released array ends the stream
    return 0


def _get_last_error(_address: int) -> None:
    """No text beyond the error number."""


def _callback(prototype: Any, function: Callable[..., Any]) -> int:
    callback = prototype(function)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))  # never freed: consumers may outlive this module
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None, "a function has an address"
    return address


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_get_buffer: Final = _python("PyObject_GetBuffer", ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
_release_buffer: Final = _python("PyBuffer_Release", None, ctypes.c_void_p)
_new_capsule: Final = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

_raise_pending: Final = _python("PyErr_Occurred", ctypes.c_void_p)  # ctypes raises what it finds pending

_ON_ONE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_GETTER: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_RELEASE_SCHEMA: Final = _callback(_ON_ONE, _releaser(ArrowSchema, _release))
_RELEASE_ARRAY: Final = _callback(_ON_ONE, _releaser(ArrowArray, _release))
_RELEASE_STREAM: Final = _callback(_ON_ONE, _releaser(_ArrowStream, _end_stream))
_GET_SCHEMA: Final = _callback(_GETTER, _get_schema)
_GET_NEXT: Final = _callback(_GETTER, _get_next)
_GET_LAST_ERROR: Final = _callback(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p), _get_last_error)


# A capsule does not copy its name, so the names are never freed either.
def _name(text: bytes) -> int:
    name = ctypes.create_string_buffer(text)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(name))
    return ctypes.addressof(name)


_SCHEMA_NAME: Final = _name(b"arrow_schema")
_ARRAY_NAME: Final = _name(b"arrow_array")
_STREAM_NAME: Final = _name(b"arrow_array_stream")
