# Where a state has what: the plain-Python kernel's layout, but for octets of a fixed number, which are
# held by number like strings (UUIDs are long, few and shared).

cdef enum Form:  # of one slot
    UNSIGNED
    SIGNED
    FLOATING
    LOGICAL
    PACKED
    NUMBERED

cdef struct Slot:
    uint32_t offset
    uint32_t size
    Form form
    Kind kind  # if numbered
    int32_t text  # if numbered: which of the state's numbers, else -1

cdef struct Sum:
    Slot slot
    uint32_t source_at  # of the two hidden counters; 0 in plain flows, which have none
    uint32_t destination_at

cdef enum:
    BLOCK_BITS = 10
    BLOCKS_PER_SEGMENT = 1 << BLOCK_BITS
    MAXIMUM_KEY = 63
    NOWHERE = 0xFFFFFFFF

cdef dict FORMS = {
    "B": UNSIGNED, "H": UNSIGNED, "I": UNSIGNED, "Q": UNSIGNED,
    "b": SIGNED, "h": SIGNED, "i": SIGNED, "q": SIGNED, "d": FLOATING, "?": LOGICAL,
}


@cython.final
cdef class Layout:
    """One kind of flow in one address family."""
    cdef readonly object schema
    cdef readonly dict slots  # name: (offset, size, form, kind, text)
    cdef list columns  # (element, derived, source's name)
    cdef uint8_t number  # of the layout
    cdef bint is_plain
    cdef bint is_passed  # of Proxy mode: rows, of which no flow is made
    cdef uint32_t state_size
    cdef uint32_t key_size
    cdef uint32_t texts_at
    cdef uint32_t text_count
    cdef uint32_t address_size
    cdef Kind* kinds  # of the state's numbers
    cdef Slot* fills
    cdef uint32_t fill_count
    cdef Sum* sums
    cdef uint32_t sum_count
    cdef Slot copied[5]
    # offsets of what the rules look at; of texts which they are
    cdef uint32_t source, destination, ports, protocol, snat, snat_port, flow_type, ingress_action, egress_action
    cdef uint32_t source_pod, destination_pod, http_vals, cluster
    cdef uint32_t icmp, interface, exporter_ipv4, exporter_ipv6, domain, direction, control_bits, start, end
    # blocks of key and state, known by number: half as long as a pointer
    cdef uint8_t** segments
    cdef uint32_t segment_count
    cdef uint32_t blocks  # all numbers ever given are below
    cdef uint32_t free  # the block freed last, NOWHERE with none; then by its first octets

    def __cinit__(self, number, layout, leading):
        """Compute from the plain-Python kernel's ``StateLayout``, or what of it a row has."""
        cdef uint32_t offset = 0
        cdef int text = 0
        self.number = number
        self.free = NOWHERE
        self.schema = schema = layout.schema
        self.is_plain = is_plain = schema.origin is FlowOrigin.PLAIN
        self.is_passed = schema.origin is FlowOrigin.PROXY
        self.address_size = 4 if schema.family == 4 else 16
        self.key_size = 0 if self.is_passed else 2 * self.address_size + 5 + (26 if is_plain else 0)
        self.slots = {}
        numbered = []
        for name, slot in layout.slots.items():
            storage = slot.storage.value
            if storage == "interned" or storage == "octets":
                numbered.append((name, slot))
                continue
            size = struct.calcsize("<" + slot.format)
            self.slots[name] = (offset, size, PACKED if storage == "address" else FORMS[slot.format], TEXT, -1)
            offset += size
        self.texts_at = offset
        self.text_count = len(numbered)
        self.state_size = offset + 4 * self.text_count
        self.kinds = <Kind*>zeroed(self.text_count + 1, sizeof(Kind))
        for name, slot in numbered:
            kind = FIXED if slot.storage.value == "octets" else TEXT if slot.element.data_type is DataType.STRING else BLOB
            size = slot.element.length if kind == FIXED else 4
            self.slots[name] = (offset, size, NUMBERED, kind, text)
            self.kinds[text] = <Kind><int>kind
            offset += 4
            text += 1
        self.columns = [
            (element, layout.derived.get(element.name), self.slots[
                layout.derived[element.name].source if element.name in layout.derived else element.name])
            for element in schema.elements
        ]
        self.direction = self.slots["flowDirection"][0] if "flowDirection" in self.slots else NOWHERE
        if self.is_passed:
            self.find_what_passing_sets()
            return
        rest = [(name, slot) for name, slot in layout.slots.items()
                if name not in leading and slot.element in schema.elements]
        fills = [name for name, slot in rest if slot.rule is MergeRule.FILL]
        sums = [name for name, slot in rest if slot.rule is MergeRule.SUM]
        self.fills = <Slot*>zeroed(len(fills) + 1, sizeof(Slot))
        for name in fills:
            self.fills[self.fill_count] = self.slot(name)
            self.fill_count += 1
        self.sums = <Sum*>zeroed(len(sums) + 1, sizeof(Sum))
        for name in sums:
            self.sums[self.sum_count].slot = self.slot(name)
            if not is_plain:
                self.sums[self.sum_count].source_at = self.slots[f"{name} of source"][0]
                self.sums[self.sum_count].destination_at = self.slots[f"{name} of destination"][0]
            self.sum_count += 1
        own = lambda name: of_family(name, schema.family)
        self.source, self.destination = self.slots[own("sourceIPv4Address")][0], self.slots[own("destinationIPv4Address")][0]
        self.ports, self.protocol = self.slots["sourceTransportPort"][0], self.slots["protocolIdentifier"][0]
        assert self.slots["destinationTransportPort"][0] == self.ports + 2, "the ports lie side by side"
        if is_plain:
            self.icmp, self.interface = self.slots[own("icmpTypeCodeIPv4")][0], self.slots["ingressInterface"][0]
            self.exporter_ipv4 = self.slots["originalExporterIPv4Address"][0]
            self.exporter_ipv6 = self.slots["originalExporterIPv6Address"][0]
            self.domain = self.slots["originalObservationDomainId"][0]
            self.control_bits, self.start = self.slots["tcpControlBits"][0], self.slots["flowStartMilliseconds"][0]
            assert self.start == 64 and self.control_bits == 80, "counters and times lead"
            return
        self.snat, self.snat_port = self.slots[own("proxySnatIPv4")][0], self.slots["proxySnatPort"][0]
        self.flow_type = self.slots["flowType"][0]
        self.ingress_action = self.slots["ingressNetworkPolicyRuleAction"][0]
        self.egress_action = self.slots["egressNetworkPolicyRuleAction"][0]
        self.source_pod, self.destination_pod = self.slots["sourcePodName"][4], self.slots["destinationPodName"][4]
        self.http_vals, self.cluster = self.slots["httpVals"][4], self.slots["clusterId"][4]
        self.start = self.slots["flowStartSeconds"][0]
        assert self.start == START_AT and self.slots["reporting side"][0] == SIDE_AT, "counters and times lead"
        for at, name in enumerate(("sourceIPv4Address", "sourceTransportPort", "proxySnatIPv4", "proxySnatPort", "flowType")):
            self.copied[<int>at] = self.slot(own(name))

    cdef int find_what_passing_sets(self) except -1:
        self.flow_type = self.slots["flowType"][0]
        self.source_pod, self.destination_pod = self.slots["sourcePodName"][4], self.slots["destinationPodName"][4]
        self.cluster, self.domain = self.slots["clusterId"][4], self.slots["originalObservationDomainId"][0]
        self.exporter_ipv4 = self.slots["originalExporterIPv4Address"][0]
        self.exporter_ipv6 = self.slots["originalExporterIPv6Address"][0]
        self.start, self.end = self.slots["flowStartSeconds"][0], self.slots["flowEndSeconds"][0]
        return 0

    def __dealloc__(self):
        cdef uint32_t at
        for at in range(self.segment_count):
            free(self.segments[at])
        free(self.segments)
        free(self.kinds)
        free(self.fills)
        free(self.sums)

    cdef Slot slot(self, name) except *:
        cdef Slot slot
        offset, size, form, kind, text = self.slots[name]
        slot.offset, slot.size, slot.text = offset, size, text
        slot.form, slot.kind = <Form><int>form, <Kind><int>kind
        return slot

    cdef inline uint8_t* state(self, uint32_t block) noexcept:
        """Where a block has its state; the key lies before it."""
        cdef size_t size = self.key_size + self.state_size
        return self.segments[block >> BLOCK_BITS] + (block & (BLOCKS_PER_SEGMENT - 1)) * size + self.key_size

    cdef uint32_t new_block(self) except? 0xFFFFFFFF:
        """Room for a key and a state."""
        cdef size_t octets = <size_t>(self.key_size + self.state_size) * BLOCKS_PER_SEGMENT
        cdef uint32_t block = self.free
        if block != NOWHERE:
            self.free = load32(self.state(block))
            return block
        if self.blocks >> BLOCK_BITS == self.segment_count:
            self.segments = <uint8_t**>grown(self.segments, (self.segment_count + 1) * sizeof(uint8_t*))
            self.segments[self.segment_count] = <uint8_t*>grown(NULL, octets)
            want_pages(self.segments[self.segment_count], octets)
            self.segment_count += 1
        self.blocks += 1
        return self.blocks - 1

    cdef inline void free_block(self, uint32_t block) noexcept:
        store32(self.state(block), self.free)
        self.free = block


cdef inline bint slot_is_empty(const Slot* slot, const uint8_t* state) noexcept:
    """Whether a state has the element's default."""
    if slot.form == FLOATING:
        return load_double(state + slot.offset) == 0.0
    return is_zero(state + slot.offset, 4 if slot.form == NUMBERED else slot.size)
