"""Finds whether an automaton matches anywhere in each of many strings, in time linear in their length.

Sets of automaton states become numbered *nodes* (states of a DFA) as they occur, and transitions between nodes are
cached, so that most code points cost one lookup. A transition depends on the place (the bits of the assertions that
hold there) and on the class of the code point behind it. When the cache is full it is cleared, never enlarged beyond
its limit. A pattern with too many nodes is simulated step by step, still in linear time.

Node 0 is the empty set. A search that may begin anywhere adds the start state to each node. One that begins at the
string's start begins with node 1, which is the start state alone, and ends at node 0.
"""

from __future__ import annotations

import threading
import weakref

import numpy as np
import numpy.typing as npt

from rules_index.kernels.jit import bare, inlined, inner, jit
from rules_index.language.patterns.assertions import assertion_bit, last_terminator, line_bits
from rules_index.language.patterns.automaton import (
    ASSERT,
    BASE,
    CONSUME,
    MARK,
    MATCH,
    SPLIT,
    WORD,
    WORD_UNICODE,
    Automaton,
)
from rules_index.language.patterns.syntax import Place
from rules_index.language.patterns.utf8 import decode

CELL_LIMIT = 1 << 20
"""The most cached transitions, and the most 64-bit words of state sets, of one pattern."""
MOST_MATCHERS = 1 << 14
"""The most patterns whose matchers are cached, some 5 KB each. To make one takes as long as to search a few thousand
strings, and with more patterns in turn each would be made anew for every batch."""
_SMALL_BYTES, _MOST_BYTES = 1 << 18, 1 << 30
"""A cache of more than the first number of bytes is kept from one search to the next only if all such caches together
have no more than the second."""
_UNKNOWN, _FOUND, _FULL = -1, -2, -3
_EDGE, _EDGE_UNICODE = int(Place.WORD_EDGE), int(Place.WORD_EDGE_UNICODE)


class _Memory(threading.local):
    """The nodes that one thread has cached: their transitions, members and hash table, and how many there are."""

    arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None = None


_large: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
"""The arrays of the large caches that are kept, by `id`."""
_large_lock = threading.Lock()


def _is_kept(arrays: tuple[np.ndarray, ...]) -> bool:
    """Whether there is room to keep a cache for the next search."""
    if sum(each.nbytes for each in arrays) <= _SMALL_BYTES:
        return True
    with _large_lock:
        known = dict(_large.items()) | {id(each): each for each in arrays}
        if sum(each.nbytes for each in known.values()) > _MOST_BYTES:
            return False
        _large.update(known)
    return True


class Searcher:
    """One pattern's automaton with the nodes cached so far. Thread-safe."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        classes = automaton.membership.shape[1]
        self._columns = (classes + 1) << int((automaton.slots >= 0).sum())
        self._words = (len(automaton.kind) + 63) // 64
        self._most = max(16, CELL_LIMIT // max(self._columns, self._words))
        self._memory = _Memory()

    def _allocated(self, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Allocates the cache of this thread for a number of nodes."""
        memory = self._memory.arrays = (
            np.empty((nodes, self._columns), np.int32),
            np.zeros((nodes, self._words), np.uint64),
            np.empty(4 << nodes.bit_length(), np.int32),
            np.empty(1, np.int64),
        )
        if self._automaton.from_start:
            memory[1][1, self._automaton.start >> 6] = np.uint64(1) << np.uint64(self._automaton.start & 63)
        _forget(memory, 1 + self._automaton.from_start)
        return memory

    def search(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """For each valid string `data[offsets[i]:offsets[i + 1]]` (UTF-8), whether it contains a match."""
        a = self._automaton
        found = np.zeros(len(offsets) - 1, np.bool_)
        memory = self._memory.arrays or self._allocated(min(16, self._most))
        row = 0
        while row < len(found):
            nodes = len(memory[0])
            row = _search(
                data,
                offsets,
                valid,
                found,
                row,
                (a.kind, a.first, a.second, a.argument, a.membership),
                (a.start, a.from_start, a.to_end),
                (a.cuts, a.classes, a.ascii_classes),
                a.slots,
                memory,
                nodes >= self._most,
            )
            if row < len(found):
                memory = self._allocated(min(nodes * 4, self._most))
        if not _is_kept(memory):
            self._memory.arrays = None
        return found


@bare
def _hash(members):  # type: ignore[no-untyped-def]
    """A hash of a set of states, [words] uint64."""
    value = np.uint64(1469598103934665603)
    for word in members:
        value = (value ^ word) * np.uint64(1099511628211)
        value ^= value >> np.uint64(29)
    return value


@inlined
def _class_of(code, cuts, classes, ascii_classes):  # type: ignore[no-untyped-def]
    """The class of a code point, by binary search of the cuts."""
    if code < 128:
        return ascii_classes[code]
    low, high = 0, len(cuts)
    if code >= cuts[high - 1]:  # most patterns distinguish nothing beyond ASCII
        return classes[high - 1]
    while high - low > 1:
        middle = (low + high) >> 1
        if cuts[middle] <= code:
            low = middle
        else:
            high = middle
    return classes[low]


@bare
def _close(program, start, members, bits, accepts, stack, seen, stamp):  # type: ignore[no-untyped-def]
    """Epsilon closure: follows splits and assertions from a set of states and, unless it is -1, the start. Returns True
    if MATCH is reached and a match may end here.

    Afterwards `stack[1:1 + stack[0]]` are the states that consume a code point.
    """
    kind, first, second, argument, _ = program
    top = len(stack) - 1
    waiting = top  # states to follow are at the top of the stack, results at its bottom
    results = 0
    if start >= 0:
        stack[waiting] = start
        waiting -= 1
        seen[start] = stamp
    for index in range(len(members)):
        word = members[index]
        base = index * 64
        while word:
            low = word & (~word + np.uint64(1))
            state = base + _log2(low)
            word ^= low
            if seen[state] != stamp:
                seen[state] = stamp
                stack[waiting] = state
                waiting -= 1
    while waiting < top:
        waiting += 1
        state = stack[waiting]
        sort = kind[state]
        if sort == MATCH:
            if accepts:
                return True
            continue
        if sort == CONSUME:
            results += 1
            stack[results] = state
            continue
        if sort == ASSERT and ((bits >> (argument[state] >> 1)) & 1) == (argument[state] & 1):
            continue
        target = first[state]
        if seen[target] != stamp:
            seen[target] = stamp
            stack[waiting] = target
            waiting -= 1
        if sort == SPLIT:
            target = second[state]
            if seen[target] != stamp:
                seen[target] = stamp
                stack[waiting] = target
                waiting -= 1
    stack[0] = results
    return False


@inlined
def _log2(bit):  # type: ignore[no-untyped-def]
    """The index of the only set bit."""
    position = 0
    if bit >> np.uint64(32):
        position += 32
        bit >>= np.uint64(32)
    if bit >> np.uint64(16):
        position += 16
        bit >>= np.uint64(16)
    if bit >> np.uint64(8):
        position += 8
        bit >>= np.uint64(8)
    if bit >> np.uint64(4):
        position += 4
        bit >>= np.uint64(4)
    if bit >> np.uint64(2):
        position += 2
        bit >>= np.uint64(2)
    return position + 1 if bit >> np.uint64(1) else position


@inner
def _node_of(members, memory):  # type: ignore[no-untyped-def]
    """The number of the node for a set of states, which is added if it is new; _FULL if there is no room for it."""
    steps, known, buckets, count = memory
    mask = np.uint64(len(buckets) - 1)
    bucket = _hash(members) & mask
    while buckets[bucket] >= 0:
        node = buckets[bucket]
        same = True
        for index in range(len(members)):
            if known[node, index] != members[index]:
                same = False
                break
        if same:
            return node
        bucket = (bucket + np.uint64(1)) & mask
    if count[0] == len(known):
        return _FULL
    node = count[0]
    count[0] += 1
    known[node] = members
    steps[node] = _UNKNOWN
    buckets[bucket] = node
    return node


@jit
def _forget(memory, kept):  # type: ignore[no-untyped-def]
    """Clears the cache, except for the members of the first `kept` nodes, with which searches begin and end."""
    steps, known, buckets, count = memory
    buckets[:] = -1
    steps[:kept] = _UNKNOWN
    count[0] = kept
    for node in range(kept):
        bucket = _hash(known[node]) & np.uint64(len(buckets) - 1)
        while buckets[bucket] >= 0:
            bucket = (bucket + np.uint64(1)) & np.uint64(len(buckets) - 1)
        buckets[bucket] = node


@inner
def _step(node, bits, code_class, program, anchors, memory, may_forget, scratch):  # type: ignore[no-untyped-def]
    """The node after a code point, or _FOUND or _FULL. Caches the transition."""
    start, from_start, to_end = anchors
    stack, seen, stamp, target = scratch
    steps, known, _, _ = memory
    argument, membership = program[3], program[4]
    classes = membership.shape[1]
    stamp[0] += 1
    accepts = not to_end or code_class == classes
    if _close(program, -1 if from_start else start, known[node], bits, accepts, stack, seen, stamp[0]):
        result = _FOUND
    else:
        target[:] = 0
        if code_class < classes:
            for index in range(1, stack[0] + 1):
                state = stack[index]
                if membership[argument[state], code_class]:
                    after = program[1][state]
                    target[after >> 6] |= np.uint64(1) << np.uint64(after & 63)
        result = _node_of(target, memory)
        if result == _FULL:
            if not may_forget:
                return _FULL
            _forget(memory, 1 + from_start)
            return _node_of(target, memory)
    steps[node, bits * (classes + 1) + code_class] = result
    return result


@jit
def _search(  # type: ignore[no-untyped-def]
    data, offsets, valid, found, row, program, anchors, partition, slots, memory, may_forget
):
    """Fills `found` from `row` on. Returns the row at which the cache was full, or the number of rows."""
    cuts, classes_of, ascii_classes = partition
    membership = program[4]
    classes = membership.shape[1]
    scratch = (
        np.empty(len(program[0]) + 2, np.int32),
        np.zeros(len(program[0]), np.int64),
        np.zeros(1, np.int64),
        np.zeros(memory[1].shape[1], np.uint64),
    )
    places = False
    no = membership[0, 0] & False  # of the type of `membership`, so that Numba infers one type
    for slot in slots:
        places = places or slot >= 0
    edge, edge_unicode = assertion_bit(slots, _EDGE, True), assertion_bit(slots, _EDGE_UNICODE, True)
    edges = (edge | edge_unicode) != 0
    steps = memory[0]
    _, from_start, _ = anchors
    first = 1 if from_start else 0
    for current in range(row, len(found)):
        if not valid[current]:
            continue
        begin, end = offsets[current], offsets[current + 1]
        last = last_terminator(data, begin, end) if places else end
        position, node, previous, code_class = begin, first, np.int32(-1), 0
        # Whether the code point before is a word character, in both meanings, and whether a mark here has a base
        # character
        word = word_unicode = base = no
        is_dead = False
        while True:
            # Between printable ASCII characters no line begins or ends, and no mark needs a base character
            while position < end and data[position] < 0x80:
                byte = data[position]
                if places and (byte < 0x20 or previous < 0x20 or previous >= 0x80):
                    break
                code_class = ascii_classes[byte]
                bits = 0
                if edges:
                    bits = edge * (membership[WORD, code_class] != word)
                    bits |= edge_unicode * (membership[WORD_UNICODE, code_class] != word_unicode)
                # unsigned indices, so that Numba does not test whether they are negative
                following = steps[np.uint64(node), np.uint64(bits * (classes + 1) + code_class)]
                if following < first:
                    is_dead = following == 0
                    break
                node = following
                previous = np.int32(byte)
                position += 1
                if edges:
                    word, word_unicode = membership[WORD, code_class], membership[WORD_UNICODE, code_class]
                    base = membership[BASE, code_class]
            if is_dead:
                break
            after = position
            code = np.int32(-1)
            if position < end:
                code, after = decode(data, position, end)
                code_class = _class_of(code, cuts, classes_of, ascii_classes)
            else:
                code_class = classes
            bits = 0
            if places:
                bits = line_bits(slots, data, begin, end, last, position, previous, code)
                if edges:
                    plain = unicode = left_mark = no
                    if code >= 0:
                        mark = membership[MARK, code_class] and base
                        plain = membership[WORD, code_class] or mark
                        unicode = membership[WORD_UNICODE, code_class] or mark
                        left_mark = membership[MARK, code_class] and base and code <= 0xFFFF
                        if not membership[MARK, code_class]:
                            base = membership[BASE, code_class]
                        # Java looks back by UTF-16 unit, so that a surrogate pair ends the search for a base character
                        base = base & (code <= 0xFFFF)
                    bits |= edge * (plain != word) | edge_unicode * (unicode != word_unicode)
                    if code >= 0:
                        word = membership[WORD, code_class] or left_mark
                        word_unicode = membership[WORD_UNICODE, code_class] or left_mark
            following = steps[node, bits * (classes + 1) + code_class]
            if following == _UNKNOWN:
                following = _step(node, bits, code_class, program, anchors, memory, may_forget, scratch)
                if following == _FULL:
                    return current
            if following == _FOUND:
                found[current] = True
                break
            if position >= end or following < first:
                break
            node = following
            previous = code
            position = after
    return len(found)
