"""Engine `scan`: every conjunction compared with every row, in NumPy. The oracle of the other engines."""

from __future__ import annotations

import numpy as np

from rules_index.engines.flat import (
    GATE,
    Conjunctions,
    require,
    require_offsets,
    require_range,
)


class Scan:
    """Brute force over the code matrix, with nothing prepared and nothing skipped."""

    name = "scan"

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays
        self._conjunctions = Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__})

    @classmethod
    def build(cls, conjunctions: Conjunctions) -> Scan:
        """An engine over these conjunctions."""
        return cls({name: getattr(conjunctions, name) for name in Conjunctions.__dataclass_fields__})

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], attributes: int, rules: int) -> Scan:
        """From stored arrays; raises `InvalidArraysError` where they are not consistent."""
        for name in Conjunctions.__dataclass_fields__:
            require(name in arrays, name)
        c = Conjunctions(**{name: arrays[name] for name in Conjunctions.__dataclass_fields__})
        require(c.sizes.shape == (attributes,), "sizes")
        require(c.terms.ndim == 2 and c.terms.shape[1] == 2, "terms")
        require(c.intervals.ndim == 2 and c.intervals.shape[1] == 2, "intervals")
        require_offsets(c.set_start, len(c.intervals), "set_start")
        require_offsets(c.start, len(c.terms), "start")
        require_range(c.terms[:, 0], GATE, attributes, "terms")
        named = c.terms[:, 0] == GATE
        require_range(c.terms[~named, 1], 0, len(c.set_start) - 1, "terms")
        require_range(c.terms[named, 1], 0, c.gates, "terms")
        require(len(c.target) == len(c.start) - 1 and c.gate_start.ndim == 1, "target")
        require_offsets(c.gate_start, int(c.gate_start[-1]), "gate_start")
        require(c.gate_start[-1] <= len(c.target), "gate_start")
        require_range(c.target[c.gate_start[-1] :], 0, rules, "target")
        return cls(arrays)

    def match(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`codes` [attributes, rows] int32 -> (offsets [rows + 1] int64, rule ordinals [hits] int32)."""
        c = self._conjunctions
        rows = codes.shape[1]
        gates = np.zeros((c.gates, rows), bool)
        for gate in range(c.gates):
            for number in range(c.gate_start[gate], c.gate_start[gate + 1]):
                gates[gate] |= self._holds(number, codes, gates)
        hits: dict[int, np.ndarray] = {}
        for number in range(c.gate_start[-1], len(c.target)):
            found = self._holds(number, codes, gates)
            rule = int(c.target[number])
            hits[rule] = hits[rule] | found if rule in hits else found
        matched = [(np.flatnonzero(found), rule) for rule, found in sorted(hits.items())]
        where = np.concatenate([np.empty(0, np.int64), *(found for found, _ in matched)])
        rules = np.concatenate([np.empty(0, np.int32), *(np.full(len(f), r, np.int32) for f, r in matched)])
        order = np.argsort(where, kind="stable")
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(np.bincount(where, minlength=rows), out=offsets[1:])
        return offsets, rules[order].astype(np.int32)

    def _holds(self, number: int, codes: np.ndarray, gates: np.ndarray) -> np.ndarray:
        c = self._conjunctions
        held = np.ones(codes.shape[1], bool)
        for attribute, which in c.terms[c.start[number] : c.start[number + 1]]:
            if attribute == GATE:
                held &= gates[which]
                continue
            inside = np.zeros(codes.shape[1], bool)
            for low, high in c.intervals[c.set_start[which] : c.set_start[which + 1]]:
                inside |= (codes[attribute] >= low) & (codes[attribute] <= high)
            held &= inside
        return held
