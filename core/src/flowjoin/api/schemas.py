"""Which columns the core's batches have: the lists of names, and the schemas made of them.

For plugins whose format lists elements (Templates, tables, object keys) and for tests that make batches: a list that
is taken from here cannot part from the columns that come.
"""

from flowjoin._model.schemas import (
    AGGREGATED_NAMES,
    COUNTERS,
    PLAIN_NAMES,
    PROXY_NAMES,
    FlowSchemas,
    build_schemas,
    of_family,
)

__all__ = [
    "AGGREGATED_NAMES",
    "COUNTERS",
    "PLAIN_NAMES",
    "PROXY_NAMES",
    "FlowSchemas",
    "build_schemas",
    "of_family",
]
