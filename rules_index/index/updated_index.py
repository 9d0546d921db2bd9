"""Presents the layers of an updated index as one index: a full compile, some of whose rules are left out, and an index
of the rules that were added or changed since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rules_index.arrays import offsets_of
from rules_index.index.annotations import Annotations
from rules_index.index.combined_engine import CombinedEngine, added, attributes_left, conjunctions_of, named_by
from rules_index.index.compiled import CompiledRules, Layers
from rules_index.index.inputs import inputs_of
from rules_index.index.rule_texts import KeptTexts, RuleText
from rules_index.language.typed import Constant, Expression

_MOST_RUNS = 1 << 12
"""If at most so many rules differ from the base, its ids are copied run by run; otherwise they are gathered rule by
rule."""


Numbers = tuple[np.ndarray, np.ndarray]
"""The new ordinals, int32, of the base's rules [.], -1 for a rule that is left out, and of the changed rules [.]."""


def overlaid(layers: Layers, numbers: Numbers, rejects: pa.Table, fingerprint: str) -> CompiledRules:
    """The index of both layers as one. Its `stats` do not say how it was made: the build time is that of the base."""
    base, changed = layers.base, layers.changed
    attributes = live_attributes(layers) + tuple(changed.attributes)
    ids = _merged(base.ids, changed.ids, numbers)
    return CompiledRules(
        ids=ids,
        inputs=inputs_of(attributes),
        attributes=attributes,
        regions=(*base.regions, *changed.regions),
        index=CombinedEngine(base.index, changed.index, len(base.attributes), *numbers),
        raising=_raising(layers, numbers),
        rejects=rejects,
        fingerprint=fingerprint,
        time_zone=base.time_zone,
        event_time=base.event_time,
        stats=_stats(layers, len(base) - len(layers.left_out) + len(changed), rejects.num_rows, attributes),
        definition=layers,
        texts=_texts(layers, numbers),
        annotations=_annotations(layers, ids, numbers),
        named_lists=(*base.lists.values(), *changed.lists.values()),
    )


@dataclass(frozen=True)
class LayeredTexts:
    """The texts of the rules of both layers."""

    base: KeptTexts
    changed: KeptTexts
    numbers: Numbers

    def rule(self, ordinal: int) -> RuleText:
        """The text of a rule, like `RuleTexts.rule`."""
        place = int(np.searchsorted(self.numbers[1], ordinal))
        if place < len(self.numbers[1]) and self.numbers[1][place] == ordinal:
            return self.changed.rule(place)
        return self.base.rule(int(np.flatnonzero(self.numbers[0] == ordinal)[0]))

    def table(self, rules: int) -> pa.Table:
        """The texts of all rules, like `RuleTexts.table`."""
        base_numbers, changed_numbers = self.numbers
        both = [self.base.table(len(base_numbers)), self.changed.table(len(changed_numbers))]
        if rules != (base_numbers >= 0).sum() + len(changed_numbers):
            raise ValueError("texts")
        return pa.concat_tables(both).take(pa.array(_order(self.numbers)))

    def columns(self) -> pa.Schema:
        """The schema, like `RuleTexts.columns`; that of the rules that were compiled last."""
        return self.changed.columns()


def _texts(layers: Layers, numbers: Numbers) -> LayeredTexts | None:
    base, changed = layers.base.texts, layers.changed.texts
    return None if base is None or changed is None else LayeredTexts(base, changed, numbers)


def _annotations(layers: Layers, ids: pa.Array, numbers: Numbers) -> Annotations | None:
    base, changed = layers.base.annotations, layers.changed.annotations
    if base is None or changed is None:
        return None
    return Annotations(
        base.annotate, ids, pa.concat_tables([base.rules, changed.rules]).take(pa.array(_order(numbers)))
    )


def _order(numbers: Numbers) -> np.ndarray:
    """The rules of both layers by their new ordinals [rules] int64, each as its place in the base's rules that are
    followed by the changed ones."""
    base, changed = numbers
    live = np.flatnonzero(base >= 0)
    order = np.empty(len(live) + len(changed), np.int64)
    order[base[live]] = live
    order[changed] = len(base) + np.arange(len(changed))
    return order


def numbers_of(layers: Layers) -> Numbers:
    """The new ordinals of the rules of both layers."""
    base, changed = layers.base.ids, layers.changed.ids
    place = places_of(base, changed)
    # the ordinal of a rule of the base grows by one for each new rule with a lesser id, and falls by one for each
    # lesser one that is left out
    before = np.zeros(len(base) + 1, np.int32)
    np.add.at(before, place, 1)
    before[1:][layers.left_out] -= 1
    shift = np.cumsum(before, dtype=np.int32)
    numbers = shift[:-1] + np.arange(len(base), dtype=np.int32)
    numbers[layers.left_out] = -1
    left_out_before = np.searchsorted(layers.left_out, place)
    return numbers, (place - left_out_before + np.arange(len(changed))).astype(np.int32)


def places_of(ids: pa.Array, wanted: pa.Array) -> np.ndarray:
    """For each of `wanted`, how many of the ascending `ids` are less: [.] int64."""
    if not len(wanted) or not len(ids):
        return np.zeros(len(wanted), np.int64)
    if pa.types.is_integer(ids.type):
        return np.searchsorted(ids.to_numpy(), wanted.to_numpy())
    import polars as pl

    return pl.Series(ids).search_sorted(pl.Series(wanted), side="left").to_numpy().astype(np.int64)


def live_attributes(layers: Layers) -> tuple[Expression, ...]:
    """The base's attributes, with NULL in place of those that none of its remaining rules names, so that they are not
    computed."""
    base, c = layers.base, conjunctions_of(layers.base.index)
    starts, raising = base.raising
    # only attributes that a rule which is left out names, or may raise on, can be unused now
    asked, of_live = named_by(c, layers.left_out), np.zeros(len(base.attributes), bool)
    if len(raising):
        live = np.ones(len(base), bool)
        live[layers.left_out] = False
        live = np.repeat(live, np.diff(starts))
        asked[raising[~live]] = True
        of_live[raising[live]] = True
    used = ~asked | of_live
    used |= attributes_left(c, layers.left_out, ~used)
    return tuple(
        each if is_used else Constant(None, each.type)
        for each, is_used in zip(base.attributes, used.tolist(), strict=True)
    )


def digests_of(layers: Layers, numbers: Numbers) -> Iterator[np.ndarray]:
    """The digests of all rules of both layers by ascending id, in chunks."""
    base, changed = layers.base.source, layers.changed.source
    for which, first, last in _runs(numbers):
        yield (base, changed)[which].digests[first:last]


def _runs(numbers: Numbers) -> list[tuple[int, int, int]]:
    """Runs of consecutive rules in the order of their new ordinals: (0 for the base or 1 for the changed rules, begin,
    end)."""
    base, changed = numbers
    # a run of the base ends where a rule was inserted or left out
    live = np.flatnonzero(base >= 0)
    edges = np.flatnonzero((np.diff(live) != 1) | (np.diff(base[live]) != 1)) + 1
    begins = np.concatenate([[0], edges])[: len(live)]
    ends = np.concatenate([edges, [len(live)]])[: len(live)]
    found = [(int(base[live[b]]), 0, int(live[b]), int(live[e - 1]) + 1) for b, e in zip(begins, ends, strict=True)]
    found += [(int(number), 1, place, place + 1) for place, number in enumerate(changed.tolist())]
    return [run[1:] for run in sorted(found)]


def _merged(base: pa.Array, changed: pa.Array, numbers: Numbers) -> pa.Array:
    """The ids of both layers, ascending."""
    left_out = int((numbers[0] < 0).sum())
    if left_out + len(changed) > _MOST_RUNS:
        return pa.concat_arrays([base, changed]).take(pa.array(_order(numbers)))
    runs = _runs(numbers)
    return pa.concat_arrays([base.slice(0, 0)] + [(base, changed)[w].slice(a, b - a) for w, a, b in runs])


def _raising(layers: Layers, numbers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """For each rule of both layers, the attributes whose evaluation may raise, as CSR arrays."""
    parts = (layers.base.raising, layers.changed.raising)
    shift = (0, len(layers.base.attributes))
    count = len(numbers[0]) - len(layers.left_out) + len(numbers[1])
    owner, used = [], []
    for (starts, attributes), ordinals, first_attribute in zip(parts, numbers, shift, strict=True):
        if len(attributes):
            rule = np.repeat(ordinals, np.diff(starts))
            owner.append(rule[rule >= 0])
            used.append(attributes[rule >= 0] + first_attribute)
    if not owner:
        return np.zeros(count + 1, np.int64), np.empty(0, np.int64)
    of_rule, of_attribute = np.concatenate(owner), np.concatenate(used)
    return offsets_of(np.bincount(of_rule, minlength=count)), of_attribute[np.argsort(of_rule, kind="stable")]


def _stats(layers: Layers, rules: int, rejected: int, attributes: tuple[Expression, ...]) -> dict[str, Any]:
    """The sums of both layers' sizes. Rules that are left out still count where their data is kept."""
    base, changed = layers.base, layers.changed
    sizes = ("conjunctions", "gates", "terms", "codes")
    return {
        "rules": rules,
        "rejected": rejected,
        **{name: base.stats.get(name, 0) + changed.stats.get(name, 0) for name in sizes},
        "attributes": sum(not isinstance(each, Constant) for each in attributes),
        "derived": sum(leaf.text is not None for leaf in inputs_of(attributes)),
        "sampled_rows": base.stats.get("sampled_rows", 0),
        "engine": base.engine,
        "engine_reason": base.stats.get("engine_reason", ""),
        "structure": added(base.stats.get("structure", {}), changed.stats.get("structure", {})),
        "language_version": base.stats.get("language_version"),
        "base_rules": len(base),
        "left_out": len(layers.left_out),
        "changed": len(changed),
        "build_seconds": base.stats.get("build_seconds", 0.0),
    }
