from flowjoin_conntrack._netlink import read as read
from flowjoin_conntrack._table import ConnectionTable as ConnectionTable
