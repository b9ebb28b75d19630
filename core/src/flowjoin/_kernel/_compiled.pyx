# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=True
"""The kernel, compiled: the whole way from octets to batches, in the same steps as the plain-Python form.

Strategy: a record becomes a row, a state in the making, whose strings still lie in the Message; rows are
merged into packed states in segments; states become columns. Numbers of every kind lie in C structs, and
each part below is the twin of one or more plain-Python modules, whose reasons it does not repeat.
Invariants: what comes out is, bit for bit, what the plain-Python form gives for the same calls; octets of
a Message are looked at only after its lengths were checked to its end; no call works on more than its
share, whatever the tables hold; memory that cannot be had is MemoryError before anything was changed.
"""

import struct
from dataclasses import replace

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from flowjoin._kernel import flow_table, proxy, python_kernel
from flowjoin._kernel.aggregated import _LEADING as AGGREGATED_LEADING
from flowjoin._kernel.aggregated import AggregatedFlows
from flowjoin._kernel.checkpoint import described
from flowjoin._kernel.flow_keys import KeyFilter, key_of
from flowjoin._kernel.http_vals import merge_http_vals
from flowjoin._kernel.intake import Intake, Notices
from flowjoin._kernel.interface import IngestResult
from flowjoin._kernel.original_exporters import OriginalExporters
from flowjoin._kernel.plain import _DELTAS as PLAIN_DELTAS
from flowjoin._kernel.plain import _LEADING as PLAIN_LEADING
from flowjoin._kernel.plain import _TOTALS as PLAIN_TOTALS
from flowjoin._kernel.plain import PlainFlows
from flowjoin._kernel.proxy import as_column
from flowjoin._kernel.rows import positions_of
from flowjoin._kernel.store_enriched import EnrichedColumns
from flowjoin._kernel.tally import Tally, add_bounded
from flowjoin._model.columns import DictionaryColumn, NumberColumn, PackedColumn
from flowjoin._model.flow_batch import FlowBatch
from flowjoin._model.flow_schema import AddressFamily, FlowOrigin
from flowjoin._model.information_element import VARIABLE_LENGTH, DataType, MergeRule
from flowjoin._model.schemas import UNKNOWN_DIRECTION, of_family
from flowjoin._model.state_layout import Slot as StateSlot
from flowjoin._model.state_layout import storage_of
from flowjoin.wire.records import INTEGER_TYPES, carries_octets

__all__ = ["CompiledKernel", "CompiledProxyKernel"]

include "compiled/memory.pxi"
include "compiled/strings.pxi"
include "compiled/layouts.pxi"
include "compiled/candidates.pxi"
include "compiled/table.pxi"
include "compiled/wire_values.pxi"
include "compiled/templates.pxi"
include "compiled/aggregated.pxi"
include "compiled/plain.pxi"
include "compiled/batches.pxi"
include "compiled/checkpoint.pxi"
include "compiled/sessions.pxi"
include "compiled/passing.pxi"
include "compiled/receiving.pxi"
include "compiled/kernel.pxi"
include "compiled/proxy_kernel.pxi"
