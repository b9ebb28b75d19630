"""Connections as text, of the kernel and of Open vSwitch."""

TO_ITSELF = (
    "tcp,orig=(src=127.0.0.1,dst=127.0.0.1,sport=45218,dport=2379,packets=320108,bytes=24615344),"
    "reply=(src=127.0.0.1,dst=127.0.0.1,sport=2379,dport=45218,packets=239595,bytes=24347883),"
    "start=2020-07-24T05:07:03.998,id=3750535678,status=SEEN_REPLY|ASSURED|CONFIRMED|SRC_NAT_DONE|DST_NAT_DONE,"
    "timeout=86399,protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,wscale_orig=7,wscale_reply=7,"
    "flags_orig=WINDOW_SCALE|SACK_PERM|MAXACK_SET,flags_reply=WINDOW_SCALE|SACK_PERM|MAXACK_SET)"
)
TO_A_SERVICE = (
    "tcp,orig=(src=100.10.0.105,dst=10.96.0.1,sport=41284,dport=443,packets=343260,bytes=19340621),"
    "reply=(src=100.10.0.106,dst=100.10.0.105,sport=6443,dport=41284,packets=381035,bytes=181176472),"
    "start=2020-07-25T08:40:08.959,id=982464968,zone=65520,status=SEEN_REPLY|ASSURED|CONFIRMED|DST_NAT|DST_NAT_DONE,"
    "timeout=86399,labels=0x200000001,mark=16,protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,"
    "wscale_orig=7,wscale_reply=7,flags_orig=WINDOW_SCALE|SACK_PERM|MAXACK_SET,"
    "flags_reply=WINDOW_SCALE|SACK_PERM|MAXACK_SET)"
)
# Of Open vSwitch's data path in user space.
NETDEV = (
    "tcp,orig=(src=10.1.0.1,dst=10.1.0.2,sport=40001,dport=80),reply=(src=10.1.0.2,dst=10.1.0.1,sport=80,dport=40001),"
    "zone=65520,mark=66,labels=0x70000000000abcdef,protoinfo=(state=TIME_WAIT)"
)
NETDEV_ICMPV6 = (
    "icmpv6,orig=(src=fd00::1,dst=fd00::2,id=19,type=128,code=0),reply=(src=fd00::2,dst=fd00::1,id=19,type=129,code=0)"
)
PROC = (
    "ipv4     2 tcp      6 431989 ESTABLISHED src=10.77.1.2 dst=10.77.99.1 sport=36690 dport=80 packets=7 bytes=1372 "
    "src=10.77.2.2 dst=10.77.1.2 sport=8080 dport=36690 packets=6 bytes=50320 [ASSURED] mark=42 zone=7 use=2\n"
)
PROC_UDP = (
    "ipv6     10 udp      17 25 src=fd77:0001:0000:0000:0000:0000:0000:0002 "
    "dst=fd77:0001:0000:0000:0000:0000:0000:0001 "
    "sport=5 dport=53 packets=1 bytes=80 [UNREPLIED] src=fd77:0001:0000:0000:0000:0000:0000:0001 "
    "dst=fd77:0001:0000:0000:0000:0000:0000:0002 sport=53 dport=5 packets=0 bytes=0 mark=0 use=2\n"
)
PROC_ICMP = (
    "ipv4     2 icmp     1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=777 packets=1 bytes=84 "
    "src=10.0.0.2 dst=10.0.0.1 type=0 code=0 id=777 packets=1 bytes=84 mark=0 use=2\n"
)
