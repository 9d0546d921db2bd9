"""What the BE-Tree paper's experiments run: systems on one workload, in turn, after all have found the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.baselines.counting import KIndex, Sift
from benchmarks.baselines.expressions import Events, Expressions, Scan, counts_of_accepted
from benchmarks.baselines.gryphon import Gryphon
from benchmarks.baselines.propagation import Propagation
from benchmarks.papers.begen import Workload, boxes_of, sets_of, string_expressions, strings, tree_events
from benchmarks.papers.experiment import DifferentAnswersError, Progress, Row, in_turn
from rules_index.engines.be_tree.structure import BETree, max_cap_for
from rules_index.engines.be_tree.structure import Events as TreeEvents

OTHERS: Mapping[str, Callable[[Expressions], Any]] = {
    "Propagation": Propagation, "Gryphon": Gryphon, "k-index": KIndex, "SIFT": Sift, "SCAN": Scan,
}  # fmt: skip
TREES = {"BE": False, "BE-B": True}
SYSTEMS = (*TREES, *OTHERS)
NOT_NEGATED = ("Propagation", "k-index", "SIFT")
"""What the paper leaves out where `<>` and NOT IN occur."""
ENUMERATED = ("k-index", "SIFT")
MOST_CARDINALITY, MOST_ENTRIES = 6_000, 120_000_000
"""From this cardinality on the paper leaves out what enumerates ranges; so are here larger lists than these."""
EXTRA = ("matches", "checked by BE")
AT_A_TIME = 200
LAWS = ("uniform", "Zipf")


class Tree:
    """A BE-Tree as the baselines are called."""

    def __init__(self, given: Expressions, batch: bool, max_cap: int) -> None:
        self._sets = sets_of(given)
        self.tree = BETree.build(boxes_of(given), batch=batch, max_cap=max_cap)
        self.counters: dict[str, int] = {}
        self._taken: tuple[Events, TreeEvents] | None = None

    def match(self, events: Events) -> tuple[np.ndarray, np.ndarray]:
        """(offsets, keys), the keys of an event in no order. Events are brought into the tree's form once."""
        if self._taken is None or self._taken[0] is not events:
            self._taken = events, tree_events(events)
        offsets, keys, self.counters = self.tree.search_events(self._taken[1], sets=self._sets)
        return offsets, keys


def left_out(workload: Workload, given: Expressions) -> set[str]:
    """Systems that do not take part, as in the paper."""
    out = set(NOT_NEGATED) if workload.operators == "High" else set()
    if workload.cardinality >= MOST_CARDINALITY or counts_of_accepted(given).sum() > MOST_ENTRIES:
        out |= set(ENUMERATED)
    return out


def compared(
    given: Expressions, events: Events, systems: Sequence[str], max_cap: int, repeat: int, out: set[str] | None = None
) -> Row:  # fmt: skip
    """Microseconds an event of each system."""
    built: dict[str, Any] = {}
    for name in systems:
        if name in TREES:
            built[name] = Tree(given, TREES[name], max_cap)
        elif name not in (out or set()):
            built[name] = OTHERS[name](given)
    matches = require_equal(built, events)
    count = len(events.attribute)
    row: Row = microseconds(built, events, repeat) | {"matches": matches / count}
    if "BE" in built:
        built["BE"].match(events)
        row["checked by BE"] = built["BE"].counters["expressions_checked"] / count
    return row


def microseconds(built: Mapping[str, Any], events: Events, repeat: int) -> dict[str, float]:
    """Microseconds an event of each system. Each call takes `AT_A_TIME` events or more, some of them repeatedly, so
    that what a call from Python costs does not count."""
    times = -(-AT_A_TIME // len(events.attribute))
    many = Events(*(np.tile(each, (times, 1)) for each in events))
    tasks = {name: (lambda system=system: system.match(many)) for name, system in built.items()}
    for task in tasks.values():
        task()
    return {name: 1e6 * each / len(many.attribute) for name, each in in_turn(tasks, repeat).items()}


def require_equal(built: Mapping[str, Any], events: Events) -> int:
    """All systems find the same expressions for every event; how many."""
    expected: tuple[bytes, bytes] | None = None
    for name, system in built.items():
        offsets, keys = system.match(events)
        order = np.lexsort((keys, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))))
        found = (np.asarray(offsets, np.int64).tobytes(), keys[order].tobytes())
        if expected is not None and found != expected:
            raise DifferentAnswersError(f"{name} finds other expressions")
        expected = found
    return len(keys)


def varied(
    progress: Progress,
    parameter: str,
    values: Sequence[Any],
    repeat: int,
    events: int,
    laws: Sequence[str] = LAWS,
    systems: Sequence[str] = SYSTEMS,
    label: str = "",
    also: Mapping[Any, Mapping[str, Any]] | None = None,
    **fixed: Any,
) -> list[Row]:
    """One row for each value of a parameter of `Workload` and each law of the attributes; `also` has further parameters
    by the value."""
    rows = []
    for law in laws:
        for value in values:
            workload = replace(Workload(), law=law, **{**fixed, parameter: value, **(also or {}).get(value, {})})
            given, some = workload.draw(events)
            row: Row = {"law": law, label or parameter: value}
            row |= compared(given, some, systems, max_cap_for(workload.mp), repeat, left_out(workload, given))
            rows.append(row)
            told = ", ".join(f"{name} {row[name]:.0f}" for name in systems if name in row)
            progress(f"{law}, {parameter} {value}: {told} us")
    return rows


def classes(
    progress: Progress, operators: Sequence[str], mps: Sequence[float], repeat: int, events: int, **fixed: Any
) -> list[Row]:
    """Figure 11: match probability, by the class of operators."""
    rows = []
    for name in operators:
        told = varied(progress, "mp", mps, repeat, events, laws=("uniform",), operators=name, **fixed)
        rows += [{"class": name, "MP %": round(100 * row["mp"], 3)} | row for row in told]
    return rows


def capacities(
    progress: Progress, n: int, caps: Sequence[int], mps: Sequence[float], repeat: int, events: int, **fixed: Any
) -> list[Row]:
    """Figure 4: microseconds an event by max_cap, for several match probabilities."""
    rows = []
    for mp in mps:
        given, some = replace(Workload(), n=n, mp=mp, **fixed).draw(events)
        built = {f"max_cap {cap}": Tree(given, False, cap) for cap in caps}
        require_equal(built, some)
        rows.append({"MP %": 100 * mp} | microseconds(built, some, repeat))
        progress(f"MP {mp:.2%}")
    return rows


def building(progress: Progress, n: int, authors: int, titles: int, **fixed: Any) -> list[Row]:
    """Table 5: CPU seconds to build, and megabytes."""
    given = {law: (replace(Workload(), n=n, law=law, **fixed).draw(1)[0]) for law in LAWS}
    given |= {"authors": string_expressions(*strings(authors, 8)), "titles": string_expressions(*strings(titles, 35))}
    BETree.build(boxes_of(Workload(n=100).draw(1)[0]), batch=False)
    rows = []
    for name, expressions in given.items():
        row: Row = {"workload": name, "expressions": len(expressions.start) - 1}
        for system, batch in TREES.items():
            started = time.process_time()
            tree = BETree.build(boxes_of(expressions), batch=batch, max_cap=5)
            row |= {f"{system} s": time.process_time() - started, f"{system} MB": tree.nbytes / 1e6}
        rows.append(row)
        progress(f"{name}: {row['BE s']:.1f} s, {row['BE MB']:.0f} MB")
    return rows


def dblp(
    progress: Progress, authors: Sequence[int], titles: Sequence[int], repeat: int, events: int, mps: Sequence[float],
    mp_authors: int, mp_titles: int,
) -> list[Row]:  # fmt: skip
    """Figure 12: strings as their own events, and workloads derived from strings by match probability."""
    rows = []
    for panel, numbers, grams in (("authors", authors, 8), ("titles", titles, 35)):
        for number in numbers:
            attributes, values = strings(number, grams)
            some = Events(attributes[:events], values[:events])
            row: Row = {"workload": panel, "x": number}
            row |= compared(string_expressions(attributes, values), some, SYSTEMS, max_cap_for(0.0), repeat)
            rows.append(row)
            progress(f"{panel} {number:,}")
    for panel, number, size, event in (("authors, by MP", mp_authors, 8, 16), ("titles, by MP", mp_titles, 30, 43)):
        for mp in mps:
            workload = Strings(n=number, dimensions=677, cardinality=26, subscription=size, event=event, mp=mp)
            given, some = workload.draw(events)
            row = {"workload": panel, "x": f"{100 * mp:g} %"}
            row |= compared(given, some, SYSTEMS, max_cap_for(mp), repeat, left_out(workload, given))
            rows.append(row)
            progress(f"{panel}, MP {mp:.2%}")
    return rows


class Strings(Workload):
    """BEGen's workload whose base expressions are strings."""

    def bases(self, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Attributes, ascending, and values [bases, event size] int32: strings of so many different 3-grams."""
        attributes, values = strings(max(1, round(1 / self.mp)), 2 * self.event, self.seed)
        wanted = np.full((len(attributes), self.event), -1, np.int32), np.zeros((len(attributes), self.event), np.int32)
        for string in range(len(attributes)):
            has = np.flatnonzero(attributes[string] >= 0)
            spare = np.setdiff1d(np.arange(676), attributes[string])[: self.event]
            named = np.concatenate([attributes[string, has], spare])[: self.event]
            order = np.argsort(named)
            wanted[0][string] = named[order]
            wanted[1][string] = np.concatenate([values[string, has], np.zeros(len(spare), np.int32)])[: self.event][
                order
            ]
        return wanted


def exchange(
    progress: Progress, n: int, steps: int, repeat: int, events: int, mp: float, adapt: bool, **fixed: Any
) -> list[Row]:
    """Figure 13: half of the events are of the one workload, half of the other, while its expressions are taken out
    one by one and those of the other put in, and then back; microseconds an event, beside a tree built afresh."""
    rows = []
    for name, laws in (("from uniform", ("uniform", "Zipf")), ("from Zipf", ("Zipf", "uniform"))):
        drawn = [
            replace(Workload(), n=n, mp=mp, law=law, seed=7 + place, **fixed).draw(events)
            for place, law in enumerate(laws)
        ]
        boxes = [boxes_of(given) for given, _ in drawn]
        half = [Events(some.attribute[: events // 2], some.value[: events // 2]) for _, some in drawn]
        mixed = Events(*(np.concatenate(pair) for pair in zip(*half, strict=True)))
        asked = tree_events(mixed)
        tree = BETree.build(boxes[0], batch=False, max_cap=max_cap_for(mp))
        fresh = BETree.build(boxes[1], batch=False, max_cap=max_cap_for(mp))
        keys = [np.arange(n), np.arange(n, 2 * n)]
        at = 0
        for direction, (out, into) in enumerate(((0, 1), (1, 0))):
            for step in range(steps + 1):
                if step:
                    chunk = range((step - 1) * n // steps, step * n // steps)
                    for place in chunk:
                        tree.delete(int(keys[out][place]))
                        own = slice(boxes[into].start[place], boxes[into].start[place + 1])
                        key = int(keys[into][place])
                        tree.insert(key, boxes[into].attributes[own], boxes[into].low[own], boxes[into].high[own])
                    if adapt:
                        tree.search_events(asked, adapt=True)
                elif direction:
                    continue
                timed = {"tree": lambda tree=tree, asked=asked: tree.search_events(asked)}
                if step == steps:
                    afresh = fresh if into == 1 else BETree.build(boxes[0], batch=False, max_cap=max_cap_for(mp))
                    same_answers(tree, afresh, asked, keys[into], n)
                    timed["built afresh"] = lambda afresh=afresh, asked=asked: afresh.search_events(asked)
                elif at == 0:
                    timed["built afresh"] = timed["tree"]
                seconds = in_turn(timed, repeat)
                row: Row = {"workload": name, "changed %": at * 100 // steps}
                rows.append(row | {which: 1e6 * each / len(asked) for which, each in seconds.items()})
                at += 1
            progress(f"{name}, {'back' if direction else 'there'}")
    return rows


def same_answers(tree: BETree, fresh: BETree, asked: Any, keys: np.ndarray, n: int) -> None:
    """Both find the same boxes, whose keys differ."""
    one, other = (each.search_events(asked) for each in (tree, fresh))
    found = np.searchsorted(keys, one[1]) if len(one[1]) else one[1]
    event = np.repeat(np.arange(len(asked)), np.diff(one[0]))
    expected = np.repeat(np.arange(len(asked)), np.diff(other[0]))
    if not np.array_equal(np.sort(event * n + found), np.sort(expected * n + other[1])):
        raise DifferentAnswersError("the changed tree finds other boxes than one built afresh")
