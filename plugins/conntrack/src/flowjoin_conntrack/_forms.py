"""Which form reads netlink and holds the table: the compiled one where it was built, else the plain one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from flowjoin_conntrack import _netlink, _table

__all__ = ["FORM", "READ_OCTETS", "ConnectionTable", "read"]

if TYPE_CHECKING:
    FORM: Final[str] = ""
    from flowjoin_conntrack._netlink import read
    from flowjoin_conntrack._table import ConnectionTable
else:
    # The switch of the core's kernel (flowjoin's reference, "cli"); here too "compiled" refuses to do without.
    _wanted = os.environ.get("FLOWJOIN_KERNEL", "auto")
    try:
        if _wanted == "python":
            raise ImportError
        from flowjoin_conntrack._compiled_netlink import read
        from flowjoin_conntrack._compiled_table import ConnectionTable

        FORM = "compiled"
    except ImportError:
        if _wanted == "compiled":
            raise
        read, ConnectionTable = _netlink.read, _table.ConnectionTable
        FORM = "python"

# What is read in one go holds the loop for one to three milliseconds.
READ_OCTETS: Final = 256 * 1024 if FORM == "compiled" else 48 * 1024
