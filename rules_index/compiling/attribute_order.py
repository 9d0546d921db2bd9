"""Orders the attributes that rules use by their first use, whatever the order in which rules are compiled."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from rules_index.arrays import distinct, segment_ids
from rules_index.compiling.templates.instances import Instances
from rules_index.language.typed import Expression, Leaf

_UNUSED = np.iinfo(np.int64).max


class AttributeOrder:
    """Notes which rules use which attributes. An attribute is given as its index in `attributes`, which may grow."""

    def __init__(self, attributes: Sequence[Expression]) -> None:
        self._attributes = attributes
        # first use by attribute: rule << 32 | place in the rule
        self._first: dict[int, int] = {}
        self._blocks: list[np.ndarray] = []
        # (rule, attribute) for attributes that are not plain columns
        self._rules = array("i")
        self._computed = array("i")
        self._more: list[np.ndarray] = []

    def add(self, rule: int, attributes: Iterable[int]) -> None:
        """Notes the attributes that a rule names, in the order of its text. Rules come by ascending number."""
        for place, attribute in enumerate(attributes):
            self._first.setdefault(attribute, rule << 32 | place)
            if not self._is_column(attribute):
                self._rules.append(rule)
                self._computed.append(attribute)

    def extend(self, instances: Instances) -> None:
        """Notes the attributes that several rules name."""
        if len(instances.attributes) == 0:
            return
        rules = instances.rules[segment_ids(instances.named)]
        place = np.arange(len(rules)) - np.repeat(instances.named[:-1], np.diff(instances.named))
        first = np.full(len(self._attributes), _UNUSED)
        np.minimum.at(first, instances.attributes, rules << 32 | place)
        self._blocks.append(first)
        computed = np.array([not self._is_column(attribute) for attribute in range(len(first))])[instances.attributes]
        self._more.append(np.stack([rules[computed], instances.attributes[computed]], axis=1))

    def _is_column(self, attribute: int) -> bool:
        expression = self._attributes[attribute]
        return isinstance(expression, Leaf) and expression.text is None

    def order(self) -> np.ndarray:
        """The attributes [used] int64 that rules name, by first use: by rule, then by place in it."""
        first = np.full(len(self._attributes), _UNUSED)
        first[list(self._first)] = list(self._first.values())
        for block in self._blocks:
            np.minimum(first[: len(block)], block, out=first[: len(block)])
        return np.argsort(first, kind="stable")[: int((first != _UNUSED).sum())]

    def computed(self, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the distinct uses of attributes that are not plain columns, as (rules, ranks) [uses] int64, by rule
        and then by rank. rank: [attributes] int32, replaces the attribute's index."""
        rules = [np.array(self._rules, np.int64), *(pairs[:, 0] for pairs in self._more)]
        attributes = [np.array(self._computed, np.int64), *(pairs[:, 1] for pairs in self._more)]
        pairs = distinct(np.concatenate(rules) << 32 | rank[np.concatenate(attributes)])
        return pairs >> 32, pairs & 0xFFFFFFFF
