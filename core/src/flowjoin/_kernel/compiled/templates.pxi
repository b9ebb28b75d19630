# What was compiled for one Template: how its records are walked, and how they become rows.
#
# A row is a state in the making: numbers lie where the state has them, strings are still in the Message.
# What the Template lacks has its default there, put once. Lengths are checked by ``measure``, which reads
# no value; ``read`` relies on it.

cdef enum Step:  # what is done with one field
    NOTHING  # it has no octets: the default stays
    SKIPPED
    SKIPPED_VARIABLE
    NUMBER1
    NUMBER2
    NUMBER4
    NUMBER8
    NUMBER_ANY  # of any length, brought into its type's range
    FLOAT4
    FLOAT8
    BOOLEAN
    MICROSECONDS
    NANOSECONDS
    OCTETS
    STRING
    STRING_VARIABLE
    OCTETS_VARIABLE

cdef enum:  # what plain flows are computed from and no state has
    START_NANOSECONDS
    START_MICROSECONDS
    START_MILLISECONDS
    START_SECONDS
    START_UPTIME
    START_BEFORE_EXPORT
    END_NANOSECONDS
    END_MICROSECONDS
    END_MILLISECONDS
    END_SECONDS
    END_UPTIME
    END_BEFORE_EXPORT
    INIT_TIME
    ICMP_TYPE
    ICMP_CODE
    REGISTERS

cdef dict REGISTER_NAMES = {
    "flowStartNanoseconds": START_NANOSECONDS,
    "flowStartMicroseconds": START_MICROSECONDS,
    "flowStartMilliseconds": START_MILLISECONDS,
    "flowStartSeconds": START_SECONDS,
    "flowStartSysUpTime": START_UPTIME,
    "flowStartDeltaMicroseconds": START_BEFORE_EXPORT,
    "flowEndNanoseconds": END_NANOSECONDS,
    "flowEndMicroseconds": END_MICROSECONDS,
    "flowEndMilliseconds": END_MILLISECONDS,
    "flowEndSeconds": END_SECONDS,
    "flowEndSysUpTime": END_UPTIME,
    "flowEndDeltaMicroseconds": END_BEFORE_EXPORT,
    "systemInitTimeMilliseconds": INIT_TIME,
}
cdef uint64_t[4] TIME_SCALES = [1_000_000, 1_000, 1, 0]  # nanoseconds and so on, to milliseconds; 0: multiply

cdef struct Operation:
    Step step
    uint32_t length  # octets of the field
    bint stays  # the same field feeds another operation
    int32_t field  # its position in the Template
    int32_t register  # else -1
    uint32_t natural  # octets of the type in full size
    bint is_signed
    Slot slot


@cython.final
cdef class Rows:
    """The records of one Template, in one address family."""
    cdef Layout layout
    cdef Operation* operations
    cdef uint32_t operation_count
    cdef uint32_t* runs  # octets of fixed length before each field of variable length, and after the last
    cdef uint32_t run_count
    cdef uint32_t minimum
    cdef uint8_t* row
    cdef Found* texts
    cdef uint64_t registers[REGISTERS]
    cdef list defaults  # Python values that texts point into: those put once
    cdef list kept  # and those of the record last loaded
    cdef Slot* latest
    cdef uint32_t latest_count
    cdef Slot* maxima
    cdef uint32_t maximum_count
    cdef bint has_http_vals
    # of plain flows and of rows that pass
    cdef bint has_icmp, has_domain
    cdef bint has_delta[4]
    cdef bint has_total[4]
    cdef bint has_time[12]
    # of rows that pass
    cdef bint has_start, has_end, has_direction
    cdef tuple absent  # two: without and with a time at which the original exporter started
    cdef tuple lacking_ports
    # counted and not yet told, by name
    cdef uint64_t absent_count[2]
    cdef uint64_t lacking_ports_count
    cdef bint absent_told[2]
    cdef bint ports_told

    def __cinit__(self, Layout layout, template, dict positions, rules, defaults):
        """Compile; ``positions`` of the fields by the names under which the flow takes them."""
        cdef uint32_t run = 0
        cdef uint32_t count = 0
        self.layout = layout
        self.has_start, self.has_end = "flowStartSeconds" in positions, "flowEndSeconds" in positions
        self.has_direction = "flowDirection" in positions
        self.has_domain = "originalObservationDomainId" in positions
        self.defaults = []
        self.kept = []
        self.row = <uint8_t*>zeroed(layout.state_size, 1)
        self.texts = <Found*>zeroed(layout.text_count + 1, sizeof(Found))
        for name, value in defaults.items():
            if name not in positions:
                self.put_default(name, value)
        targets = {}
        for name, field in positions.items():
            targets.setdefault(field, []).extend(self.targets(name))
        operations = []
        runs = []
        for at, field in enumerate(template.fields):
            if field.length == VARIABLE_LENGTH:
                runs.append(run)
                run = 0
            else:
                run += field.length
            operations += self.compile_field(at, field, targets.get(at, ()))
        runs.append(run)
        self.run_count = len(runs)
        self.runs = <uint32_t*>zeroed(self.run_count, sizeof(uint32_t))
        for at in range(self.run_count):
            self.runs[at] = runs[at]
        self.minimum = template.minimum_record_length
        self.operations = <Operation*>zeroed(len(operations) + 1, sizeof(Operation))
        for step, length, stays, field, register, natural, is_signed, name in operations:
            if step == SKIPPED and count and self.operations[count - 1].step == SKIPPED:
                self.operations[count - 1].length += length
                continue
            self.operations[count].step = <Step><int>step
            self.operations[count].length = length
            self.operations[count].stays = stays
            self.operations[count].field = field
            self.operations[count].register = register
            self.operations[count].natural = natural
            self.operations[count].is_signed = is_signed
            if name is not None:
                self.operations[count].slot = layout.slot(name)
            count += 1
        self.operation_count = count
        latest = [name for name in positions if name in layout.slots and rules.get(name) is MergeRule.LATEST]
        maxima = [name for name in positions if name in layout.slots and rules.get(name) is MergeRule.MAX]
        # the order of the plain-Python kernel, that of the slots: when strings find no room, it tells
        latest.sort(key=list(rules).index)
        self.latest = <Slot*>zeroed(len(latest) + 1, sizeof(Slot))
        for name in latest:
            self.latest[self.latest_count] = layout.slot(name)
            self.latest_count += 1
        self.maxima = <Slot*>zeroed(len(maxima) + 1, sizeof(Slot))
        for name in maxima:
            self.maxima[self.maximum_count] = layout.slot(name)
            self.maximum_count += 1
        self.has_http_vals = "httpVals" in positions
        if layout.is_plain:
            self.has_icmp = of_family("icmpTypeCodeIPv4", layout.schema.family) in positions
            for at, name in enumerate(PLAIN_DELTAS):
                self.has_delta[<int>at] = name in positions
            for at, name in enumerate(PLAIN_TOTALS):
                self.has_total[<int>at] = name in positions
        if layout.is_plain or layout.is_passed:
            for name, register in REGISTER_NAMES.items():
                if register < INIT_TIME:
                    self.has_time[<int>register] = name in positions

    def __dealloc__(self):
        free(self.operations)
        free(self.runs)
        free(self.row)
        free(self.texts)
        free(self.latest)
        free(self.maxima)

    cdef int put_default(self, name, value) except -1:
        cdef Slot slot = self.layout.slot(name)
        if slot.form == NUMBERED:
            self.point(slot.text, value, self.defaults)
        else:
            store_number(self.row + slot.offset, value, slot.size)
        return 0

    cdef list targets(self, name):
        """The slot, the register, or both, that an element feeds."""
        found = []
        layout = self.layout
        if layout.is_plain:
            if name in REGISTER_NAMES:
                found.append((<int>REGISTER_NAMES[name], None))
            elif name == of_family("icmpTypeIPv4", layout.schema.family):
                found.append((<int>ICMP_TYPE, None))
            elif name == of_family("icmpCodeIPv4", layout.schema.family):
                found.append((<int>ICMP_CODE, None))
            if name in ("flowStartMilliseconds", "flowEndMilliseconds"):
                return found  # their slots are computed
        elif layout.is_passed and name in REGISTER_NAMES and self.computes_time(<int>REGISTER_NAMES[name]):
            found.append((<int>REGISTER_NAMES[name], None))
        if name in layout.slots:
            found.append((-1, name))
        return found

    cdef bint computes_time(self, int register):
        """Whether a row that passes has a time which the register tells."""
        if register < END_NANOSECONDS:
            return not self.has_start
        return not self.has_end or (register == INIT_TIME and not self.has_start)

    cdef list compile_field(self, at, field, targets):
        element, length = field.element, field.length
        data_type = element.data_type
        if not targets:
            step = SKIPPED_VARIABLE if length == VARIABLE_LENGTH else SKIPPED
            return [(<int>step, length, False, at, -1, 0, False, None)]
        is_signed = data_type in INTEGER_TYPES and INTEGER_TYPES[data_type][1]
        natural = data_type.natural_length
        if length == 0:
            step = NOTHING
        elif carries_octets(field):
            step = OCTETS_VARIABLE if length == VARIABLE_LENGTH else OCTETS
        elif data_type is DataType.STRING:
            step = STRING_VARIABLE if length == VARIABLE_LENGTH else STRING
        elif data_type is DataType.BOOLEAN:
            step = BOOLEAN
        elif data_type is DataType.FLOAT32 or data_type is DataType.FLOAT64:
            step = FLOAT4 if length == 4 else FLOAT8
        elif data_type is DataType.DATE_TIME_MICROSECONDS:
            step = MICROSECONDS
        elif data_type is DataType.DATE_TIME_NANOSECONDS:
            step = NANOSECONDS
        elif data_type in INTEGER_TYPES or data_type in (DataType.DATE_TIME_SECONDS, DataType.DATE_TIME_MILLISECONDS):
            step = NUMBER_ANY
            if length == natural and not is_signed:
                step = {1: NUMBER1, 2: NUMBER2, 4: NUMBER4, 8: NUMBER8}[length]
        else:
            step = OCTETS_VARIABLE if length == VARIABLE_LENGTH else OCTETS
        last = len(targets) - 1
        return [
            (<int>(NUMBER_ANY if register >= 0 and step in (NUMBER1, NUMBER2, NUMBER4, NUMBER8) else step),
             length, number != last, at, register, natural, is_signed, name)
            for number, (register, name) in enumerate(targets)
        ]

    cdef inline int64_t measure(self, const uint8_t* data, uint32_t start, uint32_t end) noexcept:
        """How many records lie in a Set; -1 if the last one runs past its end."""
        cdef int64_t count = 0
        cdef uint32_t at = start, run, length
        if self.run_count == 1:
            return (end - start) // self.minimum
        while end - at >= self.minimum:
            for run in range(self.run_count - 1):
                at += self.runs[run]
                if at >= end:
                    return -1
                length = data[at]
                at += 1
                if length == 255:
                    if end - at < 2:
                        return -1
                    length = wire16(data + at)
                    at += 2
                if length > end - at:
                    return -1
                at += length
            if self.runs[self.run_count - 1] > end - at:
                return -1
            at += self.runs[self.run_count - 1]
            count += 1
        return count

    cdef inline const uint8_t* read(self, const uint8_t* at, uint32_t export_time) noexcept:
        """Make the row of a measured record; gives where the next one begins."""
        cdef Operation* operation = self.operations
        cdef Operation* end = operation + self.operation_count
        cdef uint32_t length
        cdef uint64_t value
        while operation < end:
            length = operation.length
            if operation.step == STRING_VARIABLE or operation.step == OCTETS_VARIABLE:
                length = at[0]
                at += 1
                if length == 255:
                    length = wire16(at)
                    at += 2
                self.texts[operation.slot.text].octets = at
                self.texts[operation.slot.text].length = length
            elif operation.step == NUMBER8:
                store64(self.row + operation.slot.offset, wire64(at))
            elif operation.step == NUMBER4:
                store32(self.row + operation.slot.offset, wire32(at))
            elif operation.step == NUMBER2:
                store16(self.row + operation.slot.offset, wire16(at))
            elif operation.step == NUMBER1:
                self.row[operation.slot.offset] = at[0]
            elif operation.step == OCTETS:
                if operation.slot.form == NUMBERED:
                    self.texts[operation.slot.text].octets = at
                    self.texts[operation.slot.text].length = length
                else:
                    memcpy(self.row + operation.slot.offset, at, operation.slot.size)
            elif operation.step == SKIPPED:
                pass
            elif operation.step == SKIPPED_VARIABLE:
                length = at[0]
                at += 1
                if length == 255:
                    length = wire16(at)
                    at += 2
            elif operation.step == STRING:
                self.texts[operation.slot.text].octets = at
                while length and at[length - 1] == 0:
                    length -= 1
                self.texts[operation.slot.text].length = length
                length = operation.length
            elif operation.step == FLOAT4:
                store_double(self.row + operation.slot.offset, <double>wire_float(at))
            elif operation.step == FLOAT8:
                store_double(self.row + operation.slot.offset, wire_double(at))
            elif operation.step == BOOLEAN:
                self.row[operation.slot.offset] = at[0] == 1
            elif operation.step != NOTHING:
                if operation.step == MICROSECONDS:
                    value = ntp(wire64(at), export_time, 1_000_000, 0xFFFFF800)
                elif operation.step == NANOSECONDS:
                    value = ntp(wire64(at), export_time, 1_000_000_000, 0xFFFFFFFF)
                else:
                    value = number_in_range(at, length, operation.natural, operation.is_signed)
                if operation.register >= 0:
                    self.registers[operation.register] = value
                else:
                    store_number(self.row + operation.slot.offset, value, operation.slot.size)
            if not operation.stays:
                at += length
            operation += 1
        return at

    cdef int load(self, tuple record) except -1:
        """Make the row of a record that the plain-Python decoder has read."""
        cdef uint32_t number
        cdef Operation* operation
        cdef uint64_t bits
        self.kept.clear()
        for number in range(self.operation_count):
            operation = self.operations + number
            if operation.step == SKIPPED or operation.step == SKIPPED_VARIABLE:
                continue
            value = record[operation.field]
            if operation.register < 0 and operation.slot.form == NUMBERED:
                self.point(operation.slot.text, value, self.kept)
            elif operation.register < 0 and operation.slot.form == PACKED:
                memcpy(self.row + operation.slot.offset, PyBytes_AS_STRING(value), operation.slot.size)
            elif operation.register < 0 and operation.slot.form == FLOATING:
                store_double(self.row + operation.slot.offset, value)
            else:
                if operation.is_signed:
                    bits = <uint64_t><int64_t>value
                else:  # an NTP stamp may lie before 1970, which no column can hold
                    bits = max(value, 0)
                if operation.register >= 0:
                    self.registers[operation.register] = bits
                else:
                    store_number(self.row + operation.slot.offset, bits, operation.slot.size)
        return 0

    cdef int point(self, int32_t text, value, list holder) except -1:
        octets = (<str>value).encode() if isinstance(value, str) else value
        holder.append(octets)
        self.texts[text].octets = <const uint8_t*>PyBytes_AS_STRING(octets)
        self.texts[text].length = <uint32_t>len(octets)
        return 0
