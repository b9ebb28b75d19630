"""Flows as lines of text, CSV or JSON, written by compiled code where it was built.

The one form of both for exporters: the columns are theirs, quoting, times and addresses are the same everywhere.
"""

from flowjoin.api._csv_lines import ADDRESS_COLUMNS, CsvLines
from flowjoin.api._json_lines import JsonLines
from flowjoin.api._line_slices import cut_into_slices, refuse_unknown_elements

__all__ = ["ADDRESS_COLUMNS", "CsvLines", "JsonLines", "cut_into_slices", "refuse_unknown_elements"]
