"""Rows to octets for exporters of text and of records: CSV, JSON lines, IPFIX, ClickHouse's Native format.

A format says, once per batch, what each field of a row is made of (a *piece*); ``write_rows`` then writes all rows
in one go, by compiled code where it was built. For a format that goes by columns, one piece makes one column.

Pieces: ``Chosen`` (texts made once per distinct value, by code), ``Decimal`` (digits of a number), ``Dotted`` (an IPv4
address as text), ``NetworkOrder`` (a number, its highest octet first), ``Fixed`` (octets as they are),
``Hexadecimal`` (their digits), ``Constant``.
"""

from flowjoin._kernel.row_writing import (
    Chosen,
    Constant,
    Decimal,
    Dotted,
    Fixed,
    Hexadecimal,
    NetworkOrder,
    Piece,
    TextStyle,
    chosen_of,
    rows_per_slice,
    texts_of,
    write_rows,
)
from flowjoin._model.columns import DictionaryColumn, NumberColumn, PackedColumn

__all__ = [
    "Chosen",
    "Constant",
    "Decimal",
    "DictionaryColumn",
    "Dotted",
    "Fixed",
    "Hexadecimal",
    "NetworkOrder",
    "NumberColumn",
    "PackedColumn",
    "Piece",
    "TextStyle",
    "chosen_of",
    "rows_per_slice",
    "texts_of",
    "write_rows",
]
