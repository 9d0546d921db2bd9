"""The arrays of a BE-Tree in memory: c-nodes, p-nodes, expressions, and the work that is still to be done on them.

Everything is addressed by number. The three pools only grow: a removed node or expression leaves a gap until the tree
is laid out again. A bucket, its c-node and its l-node are one record, because they correspond one to one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rules_index.kernels.jit import inner, jit

NO_NODE = -1
NO_EXPRESSION = 0
"""Word 0 is unused, so that an array of zeros refers to no expression."""

C_NODE = np.dtype(
    [
        ("above", np.int32),  # the p-node that it hangs from
        ("parent", np.int32),  # and the c-node above that
        ("up", np.int32),  # the bucket that it is one half of
        ("left", np.int32),  # the halves of its bucket, both or none
        ("right", np.int32),
        ("attribute", np.int32),  # of its bucket, which has the codes [low, high]
        ("low", np.int32),
        ("high", np.int32),
        ("middle", np.int32),  # last code of the left half
        ("depth", np.int32),  # number of attributes on its path, -1 once removed
        ("partitions", np.int32),  # number of its p-nodes
        ("first", np.int32),  # and one of them
        ("head", np.int32),  # first and last expression of its l-node
        ("tail", np.int32),
        ("count", np.int32),  # expressions in its l-node
        ("below", np.int32),  # expressions in its l-node and below its p-nodes
    ],
    align=True,
)
"""The root is number 0; it has no `above`, no `parent` and no bucket."""

P_NODE = np.dtype(
    [
        ("attribute", np.int32),  # -1 once removed
        ("above", np.int32),  # the c-node whose p-directory it is in
        ("top", np.int32),  # the c-node of its largest bucket
        ("next", np.int32),  # its neighbours in the p-directory
        ("previous", np.int32),
        ("size", np.int32),  # expressions below
        ("gain", np.int64),  # sum of Gain over the l-nodes below (section 5)
        ("loss", np.float64),  # sum of Loss over itself and all nodes below
    ],
    align=True,
)

WINDOW = np.dtype(
    [
        ("discarded", np.int64),  # predicate evaluations discarded since the window began
        ("operations", np.int64),  # the clocks when it began
        ("events", np.int64),
        ("loss", np.float64),  # Loss over the last whole window
    ],
    align=True,
)

NODE, PREVIOUS, COUNT, KEY, NEXT, EVALUATED, HEADER = range(7)
"""The words of an expression: its c-node, its neighbour in the l-node, the number of its predicates, its key, its other
neighbour, the number of predicates that a search evaluates; then (attribute, low, high) of each, with those to evaluate
first. What a search reads is contiguous."""

C_USED, P_USED, WORDS_USED, P_ALIVE, PENDING, SCHEDULED, OPERATIONS, EVENTS, SCALARS = range(9)
"""Indices into `Store.scalars`."""

MOST_WORDS = 2**31 - 1
SMALLEST_POOL = 64


class Store(NamedTuple):
    """A BE-Tree.

    sizes         [attributes] int32, number of codes of each
    c_nodes       [.] `C_NODE`; p_nodes [.] `P_NODE`
    directory     [a power of two] int32, the p-directories of all c-nodes: hash of (c-node, attribute) -> p-node
    words         [.] int32, expressions
    expressions   [keys] int32, key -> expression
    path          [attributes, 2] int32, scratch: the bucket on a path, low -1 for attributes that are not on it
    uses          [attributes, 2] int64, scratch, 0: expressions of an l-node that use an attribute, and their codes
    schedule      [., 3] int64, c-nodes that may overflow: number, capacity, whether its expressions are all new
    l_windows, c_windows  [c_nodes or 0] `WINDOW`; p_windows [p_nodes or 0]. Empty until the first search that adapts
    scalars       [`SCALARS`] int64: how much of the pools is in use, the first expression to be inserted again,
                  the number of scheduled c-nodes, and the clocks of operations and of events

    The parameters are the paper's; with `histogram`, Loss of a new attribute is estimated (section 5), else 0.
    """

    sizes: np.ndarray
    c_nodes: np.ndarray
    p_nodes: np.ndarray
    directory: np.ndarray
    words: np.ndarray
    expressions: np.ndarray
    path: np.ndarray
    uses: np.ndarray
    schedule: np.ndarray
    l_windows: np.ndarray
    c_windows: np.ndarray
    p_windows: np.ndarray
    scalars: np.ndarray
    max_cap: int
    min_size: int
    theta: float
    rank_window: float
    histogram: bool


class Parameters(NamedTuple):
    """max_cap: the most expressions of an l-node before it is cut (Table 4: 5 below 1 % match probability, 20 below 10
    %, else 160). min_size: the fewest expressions of a p-node. theta: the Rank below which a node is recycled.
    rank_window: the length of a node's window, as a share of the expressions below it. histogram: see `Store`."""

    max_cap: int = 5
    min_size: int = 3
    theta: float = 0.0
    rank_window: float = 0.1
    histogram: bool = False


def directory_size(p_nodes: int) -> int:
    """Returns the number of slots of a hash table that this many p-nodes fill by at most a half."""
    return 1 << max(4, (2 * p_nodes - 1).bit_length())


def empty_store(sizes: np.ndarray, parameters: Parameters, c_nodes: int, p_nodes: int, words: int, keys: int) -> Store:
    """A store with the given room and nothing in use, not even a root."""
    if words > MOST_WORDS:
        raise OverflowError("a BE-Tree holds at most 2**31 words of expressions")
    attributes = len(sizes)
    scalars = np.zeros(SCALARS, np.int64)
    scalars[WORDS_USED] = 1
    return Store(
        sizes=np.ascontiguousarray(sizes, np.int32),
        c_nodes=np.empty(c_nodes, C_NODE),
        p_nodes=np.empty(p_nodes, P_NODE),
        directory=np.full(directory_size(p_nodes), NO_NODE, np.int32),
        words=np.empty(words, np.int32),
        expressions=np.zeros(keys, np.int32),
        path=np.full((attributes, 2), -1, np.int32),
        uses=np.zeros((attributes, 2), np.int64),
        schedule=np.empty((SMALLEST_POOL, 3), np.int64),
        l_windows=np.empty(0, WINDOW),
        c_windows=np.empty(0, WINDOW),
        p_windows=np.empty(0, WINDOW),
        scalars=scalars,
        max_cap=parameters.max_cap,
        min_size=parameters.min_size,
        theta=parameters.theta,
        rank_window=parameters.rank_window,
        histogram=parameters.histogram,
    )


def parameters_of(store: Store) -> Parameters:
    """The parameters with which the store was made."""
    return Parameters(store.max_cap, store.min_size, store.theta, store.rank_window, store.histogram)


def enlarged(store: Store) -> Store:
    """Returns the same tree with its unfinished work, and with room for another step of that work: pools without room
    are doubled."""
    used = store.scalars
    c_nodes, p_nodes, schedule = store.c_nodes, store.p_nodes, store.schedule
    if used[C_USED] + 2 > len(c_nodes):
        c_nodes = _doubled(c_nodes)
    if used[P_USED] + 1 > len(p_nodes):
        p_nodes = _doubled(p_nodes)
    if used[SCHEDULED] + 3 > len(schedule):
        schedule = _doubled(schedule)
    store = store._replace(c_nodes=c_nodes, p_nodes=p_nodes, schedule=schedule)
    if len(store.directory) < directory_size(len(p_nodes)):
        store = store._replace(directory=np.full(directory_size(len(p_nodes)), NO_NODE, np.int32))
        fill_directory(store.directory, p_nodes, used[P_USED])
    return store if not len(store.c_windows) else with_windows(store)


def with_windows(store: Store) -> Store:
    """The same tree with room for the windows of all its nodes."""
    windows = []
    for old, nodes in (
        (store.l_windows, store.c_nodes),
        (store.c_windows, store.c_nodes),
        (store.p_windows, store.p_nodes),
    ):
        new = np.zeros(len(nodes), WINDOW)
        new["operations"], new["events"] = store.scalars[OPERATIONS], store.scalars[EVENTS]
        new[: len(old)] = old
        windows.append(new)
    return store._replace(l_windows=windows[0], c_windows=windows[1], p_windows=windows[2])


def used_bytes(store: Store) -> int:
    """The bytes of a tree, without its arrays' spare room."""
    pools = ((C_USED, (store.c_nodes, store.l_windows, store.c_windows)), (P_USED, (store.p_nodes, store.p_windows)))
    nodes = sum(pool[: store.scalars[used]].nbytes for used, arrays in pools for pool in arrays)
    return nodes + 4 * int(store.scalars[WORDS_USED]) + store.directory.nbytes + store.expressions.nbytes


def with_keys(store: Store, key: int) -> Store:
    """The same tree with room for a key."""
    if key < len(store.expressions):
        return store
    expressions = np.zeros(max(key + 1, 2 * len(store.expressions)), np.int32)
    expressions[: len(store.expressions)] = store.expressions
    return store._replace(expressions=expressions)


def _doubled(pool: np.ndarray) -> np.ndarray:
    larger = np.empty((max(SMALLEST_POOL, 2 * len(pool)), *pool.shape[1:]), pool.dtype)
    larger[: len(pool)] = pool
    return larger


@inner
def has_room(store: Store) -> bool:
    """Whether one step of work (see `space_cutting`) is certain to have enough room."""
    c_used, p_used, scheduled = store.scalars[C_USED], store.scalars[P_USED], store.scalars[SCHEDULED]
    spare = min(len(store.c_nodes) - c_used - 2, len(store.p_nodes) - p_used - 1, len(store.schedule) - scheduled - 3)
    return spare >= 0


@jit
def is_crowded(store: Store, words: int) -> bool:
    """Whether the tree should be laid out again: there is no room for `words` more words, or little room for nodes."""
    c_used, p_used, words_used = store.scalars[C_USED], store.scalars[P_USED], store.scalars[WORDS_USED]
    c_spare = len(store.c_nodes) // 16 * 15 - c_used
    p_spare = len(store.p_nodes) // 16 * 15 - p_used
    return min(c_spare, p_spare, len(store.words) - words_used - words) < 0


@inner
def _slot(directory: np.ndarray, c_node: int, attribute: int) -> int:
    """Returns the hash table's home slot for a p-directory's entry."""
    mixed = c_node * 0x9E3779B97F4A7C1 + attribute * 0x2545F4914F6CDD1D
    mixed ^= mixed >> 29
    return ((mixed * 0x5851F42D4C957F2D) >> 33) & (len(directory) - 1)


@jit
def find_p_node(directory: np.ndarray, p_nodes: np.ndarray, c_node: int, attribute: int) -> int:
    """The p-node of an attribute in a c-node's p-directory, or `NO_NODE` (SearchPDir of algorithms 1 and 3)."""
    slot = _slot(directory, c_node, attribute)
    found = directory[slot]
    while found != NO_NODE and (p_nodes[found].above != c_node or p_nodes[found].attribute != attribute):
        slot = (slot + 1) & (len(directory) - 1)
        found = directory[slot]
    return found


@inner
def enter_p_node(directory: np.ndarray, p_nodes: np.ndarray, number: int) -> None:
    """Enters a p-node into the p-directory of its parent c-node."""
    slot = _slot(directory, p_nodes[number].above, p_nodes[number].attribute)
    while directory[slot] != NO_NODE:
        slot = (slot + 1) & (len(directory) - 1)
    directory[slot] = number


@inner
def leave_p_node(directory: np.ndarray, p_nodes: np.ndarray, number: int) -> None:
    """Removes a p-node from its p-directory, and closes the gap so that searches still end at an empty slot."""
    last = len(directory) - 1
    gap = _slot(directory, p_nodes[number].above, p_nodes[number].attribute)
    while directory[gap] != number:
        gap = (gap + 1) & last
    slot = (gap + 1) & last
    while directory[slot] != NO_NODE:
        other = p_nodes[directory[slot]]
        if (slot - _slot(directory, other.above, other.attribute)) & last >= (slot - gap) & last:
            directory[gap] = directory[slot]
            gap = slot
        slot = (slot + 1) & last
    directory[gap] = NO_NODE


@jit
def fill_directory(directory: np.ndarray, p_nodes: np.ndarray, used: int) -> None:
    """Enters the first `used` p-nodes, except removed ones, into an empty directory."""
    for number in range(used):
        if p_nodes[number].attribute >= 0:
            enter_p_node(directory, p_nodes, number)
