from flowjoin_conntrack._netlink import read as read
