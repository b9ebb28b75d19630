# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
"""Many datagrams a system call: ``recvmmsg`` of Linux, and the senders' sessions without a tuple for each.

Strategy: buffers and headers are made once; what one call brought is copied out as ``bytes``. A sender's
raw socket address is looked up first; only one that was not heard in this period is shown to Python.
Invariant: a datagram that was read is given, whatever happens next; the interpreter is let go only while
the system call runs.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

import os

from flowjoin._collector.datagrams import Received

__all__ = ["Datagrams"]

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    #include <netinet/in.h>
    #include <arpa/inet.h>
    #include <string.h>

    /* the part of struct mmsghdr's use that Cython need not know */
    static void message_prepare(struct mmsghdr *messages, struct iovec *vectors, struct sockaddr_in6 *senders,
                                char *buffers, size_t size, unsigned count) {
        for (unsigned at = 0; at < count; at++) {
            vectors[at].iov_base = buffers + (size_t)at * size;
            vectors[at].iov_len = size;
            messages[at].msg_hdr.msg_iov = vectors + at;
            messages[at].msg_hdr.msg_iovlen = 1;
            messages[at].msg_hdr.msg_name = senders + at;
        }
    }
    static int message_receive(int fd, struct mmsghdr *messages, unsigned count) {
        for (unsigned at = 0; at < count; at++)  /* the system writes what it used */
            messages[at].msg_hdr.msg_namelen = sizeof(struct sockaddr_in6);
        return recvmmsg(fd, messages, count, MSG_DONTWAIT, NULL);
    }
    static int sender_text(const struct sockaddr_in6 *sender, char *text, socklen_t size) {
        const void *address = sender->sin6_family == AF_INET6
            ? (const void *)&sender->sin6_addr : (const void *)&((const struct sockaddr_in *)sender)->sin_addr;
        return inet_ntop(sender->sin6_family, address, text, size) != NULL;
    }
    static unsigned sender_port(const struct sockaddr_in6 *sender) { return ntohs(sender->sin6_port); }
    static unsigned sender_flow(const struct sockaddr_in6 *sender) { return ntohl(sender->sin6_flowinfo); }
    """
    ctypedef unsigned socklen_t
    cdef struct iovec:
        pass
    cdef struct msghdr:
        socklen_t msg_namelen
    cdef struct mmsghdr:
        msghdr msg_hdr
        unsigned msg_len
    cdef struct sockaddr_in6:
        unsigned short sin6_family
        uint32_t sin6_scope_id
    int AF_INET6
    void message_prepare(mmsghdr*, iovec*, sockaddr_in6*, char*, size_t, unsigned) noexcept nogil
    int message_receive(int, mmsghdr*, unsigned) noexcept nogil
    int sender_text(const sockaddr_in6*, char*, socklen_t) noexcept nogil
    unsigned sender_port(const sockaddr_in6*) noexcept nogil
    unsigned sender_flow(const sockaddr_in6*) noexcept nogil

cdef enum:
    AT_ONCE = 64  # datagrams a system call
    BUFFER_OCTETS = 65536  # one octet more than any UDP payload can have, so that none is ever cut
    TEXT_OCTETS = 64
    LEAST_LARGEST = 512  # smaller ones are taken for so large
    FIRST_LARGEST = 16384  # until it is known how large they are


@cython.final
cdef class Datagrams:
    """Reads datagrams; see ``datagrams.PlainDatagrams``, which does the same."""

    cdef mmsghdr* messages
    cdef iovec* vectors
    cdef sockaddr_in6* senders
    cdef char* buffers
    cdef dict known  # raw socket address: session
    cdef object peers, generation, last_session
    cdef sockaddr_in6 last_sender
    cdef socklen_t last_length
    cdef unsigned largest  # datagram of the last system call

    def __cinit__(self, peers):
        self.messages = <mmsghdr*>calloc(AT_ONCE, sizeof(mmsghdr))
        self.vectors = <iovec*>calloc(AT_ONCE, sizeof(iovec))
        self.senders = <sockaddr_in6*>calloc(AT_ONCE, sizeof(sockaddr_in6))
        self.buffers = <char*>malloc(AT_ONCE * BUFFER_OCTETS)  # a page is taken when a datagram is first put there
        if self.messages == NULL or self.vectors == NULL or self.senders == NULL or self.buffers == NULL:
            raise MemoryError
        message_prepare(self.messages, self.vectors, self.senders, self.buffers, BUFFER_OCTETS, AT_ONCE)
        self.peers = peers
        self.largest = FIRST_LARGEST
        self.known = {}

    def __dealloc__(self):
        free(self.messages)
        free(self.vectors)
        free(self.senders)
        free(self.buffers)

    def receive(self, receiving, unsigned budget, Py_ssize_t octets):
        """Read at most so many datagrams, and until there are so many octets."""
        cdef int descriptor = receiving.fileno(), count, at
        cdef unsigned read = 0, wanted, length
        cdef list messages = [], sessions = [], refused = []
        error = None
        cdef bint is_all = False
        if self.generation != self.peers.generation:  # who is not heard again will be forgotten
            self.generation = self.peers.generation
            self.known.clear()
            self.last_session = None
        while read < budget and octets > 0 and not is_all:
            # Datagrams are mostly as large as the last ones: of large ones a call must not bring far too many.
            wanted = min(<unsigned>AT_ONCE, budget - read, <unsigned>(octets // self.largest) + 1)
            with nogil:
                count = message_receive(descriptor, self.messages, wanted)
            if count < 0:
                if errno == EINTR:
                    continue
                if errno != EAGAIN:
                    error = OSError(errno, os.strerror(errno))
                count = 0
            is_all = <unsigned>count < wanted
            self.largest = LEAST_LARGEST
            for at in range(count):
                length = self.messages[at].msg_len
                octets -= length
                self.largest = max(self.largest, length)
                session = self.session_of(at, refused)
                if session is not None:
                    messages.append(PyBytes_FromStringAndSize(self.buffers + <size_t>at * BUFFER_OCTETS, length))
                    sessions.append(session)
            read += count
        return Received(read, messages, sessions, refused, error, is_all)

    cdef object session_of(self, int at, list refused):
        cdef sockaddr_in6* sender = self.senders + at
        cdef socklen_t length = self.messages[at].msg_hdr.msg_namelen
        if self.last_session is not None and length == self.last_length and memcmp(sender, &self.last_sender, length) == 0:
            return self.last_session
        raw = PyBytes_FromStringAndSize(<char*>sender, length)
        session = self.known.get(raw)
        if session is None:
            address = self.address_of(sender)
            session = self.peers.session_of(address)
            if session is None:
                refused.append(address)
                return None
            self.known[raw] = session
        memcpy(&self.last_sender, sender, length)
        self.last_length = length
        self.last_session = session
        return session

    cdef tuple address_of(self, const sockaddr_in6* sender):
        """As the socket module has it."""
        cdef char text[TEXT_OCTETS]
        if not sender_text(sender, text, TEXT_OCTETS):
            raise OSError(errno, os.strerror(errno))
        host = (<bytes>text).decode("ascii")
        if sender.sin6_family == AF_INET6:
            return host, sender_port(sender), sender_flow(sender), sender.sin6_scope_id
        return host, sender_port(sender)
