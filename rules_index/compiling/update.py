"""Makes the next version of an index: rules added, changed and removed, without compiling the others again.

The changed rules are compiled alone, beside the full compile that they change (`rules_index.index.updated_index`). An
engine's own `insert` and `delete` would cost more. They would change arrays that other threads search and that are
mapped into memory, the kernel's arrays of all rules would be laid out again, and each new constant would recode a
column for all rules. If the second index grows too large, there are few rules, or the base was compiled by an earlier
version of the language, all rules are compiled from the texts in the index.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.compiling.builder import Analyse
from rules_index.compiling.compile import ReadableRules, Settings, compile_columns
from rules_index.compiling.fingerprint import fingerprint, rule_digests, rules_naming_lists
from rules_index.compiling.rule_columns import (
    Rejects,
    RuleColumns,
    Rules,
    as_rules_table,
    pairs_of,
    read_ids,
    read_rules,
)
from rules_index.domains.list_names import names_in
from rules_index.domains.value_lists import AnyList, ValueList, by_name
from rules_index.errors import ArtifactError, RuleError, RulesIndexError
from rules_index.index.annotate import Annotate
from rules_index.index.annotations import settings_of
from rules_index.index.artifact import FORMAT_VERSION, LANGUAGE_VERSION
from rules_index.index.code_matrix import Sample
from rules_index.index.compiled import CompiledRules, Layers
from rules_index.index.rule_texts import RuleTexts
from rules_index.index.updated_index import digests_of, numbers_of, overlaid, places_of
from rules_index.language.typed import Leaf

FOLDED_SHARE = 0.1
"""The share of rules that may have changed since the last full compile before there is another full compile."""
FEW_RULES = 2_000
"""Up to so many rules are always compiled as a whole."""


def update(
    compiled: CompiledRules,
    changes: Rules,
    analyse: Analyse | None = None,
    sample: Sample | None = None,
    lists: Sequence[AnyList] = (),
    schema: pa.Schema | None = None,
) -> CompiledRules:
    """See `CompiledRules.update`."""
    started = time.perf_counter()
    before = compiled.definition
    layers = before if isinstance(before, Layers) else Layers(compiled, np.empty(0, np.int64), compiled)
    base, is_base = layers.base, layers.changed is compiled
    named, enabled, rejects = _read(changes, compiled)
    known_lists: dict[str, AnyList] = {**compiled.lists, **by_name(lists)}
    named, enabled = _with_rules_of_lists(base, layers.left_out, named, enabled, known_lists)
    id_type = named.type
    refused = compiled.rejects.filter(pc.invert(pc.is_in(compiled.rejects.column("rule_id").cast(id_type), named)))
    annotate = base.annotations.annotate if base.annotations is not None else None
    remaining = _no_rules(id_type, annotate) if is_base else _without(_columns(layers.changed), named)
    unchanged = _places_of_unchanged(base, enabled, known_lists)
    changed = _merged(remaining, enabled.chosen(np.flatnonzero(unchanged < 0)))
    left_out = np.setdiff1d(np.union1d(layers.left_out, _ordinals(base.ids, named)), unchanged[unchanged >= 0])
    outdated = base.stats.get("language_version") != LANGUAGE_VERSION
    if not (outdated or len(left_out) or len(changed)):
        table = _joined(refused, rejects.table(id_type))
        # the base of a loaded index is stored without its fingerprint
        known_as = base.fingerprint or fingerprint([base.source.digests], _settings(base), base.inputs)
        stats = base.stats | {"rejected": table.num_rows}
        return replace(base, rejects=table, fingerprint=known_as, stats=stats, errors={})
    schema = schema or _schema(base)
    settings = Settings(schema, compiled.engine, compiled.event_time, compiled.time_zone, annotate, known_lists)
    known = _only_unknown(analyse, compiled.derived) if analyse is not None else None
    rules = len(base) - len(left_out) + len(changed)
    if outdated or not len(base) or rules <= FEW_RULES or len(left_out) + len(changed) > FOLDED_SHARE * rules:
        whole = np.delete(np.arange(len(base)), left_out)
        given = ReadableRules(_merged(_columns(base).chosen(whole), changed), rejects)
        folded = compile_columns(given, settings, known, sample, started)
        return _with_rejects(folded, refused)
    over = compile_columns(ReadableRules(changed, rejects), settings, known, sample, started)
    newer = [
        each for name in base.lists if isinstance(each := known_lists[name], ValueList) and each != base.lists[name]
    ]
    over = replace(over, named_lists=(*over.named_lists, *newer))
    return _overlaid(Layers(base, left_out, over), _joined(refused, over.rejects), started)


def _overlaid(layers: Layers, rejects: pa.Table, started: float) -> CompiledRules:
    """The layers as one index; its fingerprint is that of a full compile."""
    numbers = numbers_of(layers)
    found = overlaid(layers, numbers, rejects, "")
    found.fingerprint = fingerprint(digests_of(layers, numbers), _settings(found), found.inputs)
    found.stats["build_seconds"] = round(time.perf_counter() - started, 6)
    return found


def _settings(compiled: CompiledRules) -> list[Any]:
    """The settings that are part of an index's fingerprint."""
    return [
        FORMAT_VERSION,
        LANGUAGE_VERSION,
        compiled.time_zone,
        compiled.event_time,
        *settings_of(compiled.annotations),
    ]


def _read(changes: Rules, compiled: CompiledRules) -> tuple[pa.Array, RuleColumns, Rejects]:
    """Returns the ids that the changes name, the rules among them that are not removed, and the malformed ones as
    rejects."""
    table = as_rules_table(changes)
    annotate = compiled.annotations.annotate if compiled.annotations is not None else None
    named: pa.Array
    if table is None:
        pairs = [*chain.from_iterable(pairs_of(changes))]
        named = read_ids([rule_id for rule_id, _ in pairs])
        enabled, rejects = read_rules([pair for pair in pairs if pair[1] is not None], compiled.time_zone, annotate)
    else:
        enabled, rejects = read_rules(_with_expression(table), compiled.time_zone, annotate)
        named = read_ids(table.column("rule_id"))
    known = compiled.ids.type
    base = compiled.definition.base if isinstance(compiled.definition, Layers) else compiled
    has_ids = bool(len(base.ids)) or compiled.rejects.column("rule_id").null_count < compiled.rejects.num_rows
    if named.null_count == len(named):
        named = pa.nulls(len(named), known)
    elif has_ids and named.type != known:
        kinds = ["integers" if pa.types.is_integer(each) else "strings" for each in (known, named.type)]
        raise RulesIndexError(
            f"Rule ids must be all strings or all integers; the index has {kinds[0]}, the new rules have {kinds[1]}."
        )
    if enabled.ids.type != named.type:
        enabled = replace(enabled, ids=enabled.ids.cast(named.type))
    return named.unique(), enabled, rejects


def _with_rules_of_lists(
    base: CompiledRules, left_out: np.ndarray, named: pa.Array, enabled: RuleColumns, lists: Mapping[str, AnyList]
) -> tuple[pa.Array, RuleColumns]:
    """Adds to the changes the rules of the base that name a list with other values; returns the ids and the rules."""
    before = base.lists
    if all(lists[name] == each for name, each in before.items()):
        return named, enabled
    rules = _columns(base)
    others = np.setdiff1d(rules_naming_lists(rules), np.union1d(left_out, _ordinals(base.ids, named)))
    stale = [
        rule
        for rule in others.tolist()
        if any(lists[name] != before[name] for name in names_in(rules.text(rule)) if name in before)
    ]
    found = rules.chosen(np.array(stale, np.int64))
    return pa.concat_arrays([named, found.ids]) if len(found) else named, _merged(enabled, found)


def _with_expression(table: pa.Table) -> pa.Table:
    if "expression" not in table.column_names:
        return table
    return table.filter(pc.is_valid(table.column("expression")))


def _no_rules(id_type: pa.DataType, annotate: Annotate | None) -> RuleColumns:
    annotations = annotate.schema.empty_table() if annotate is not None else None
    return RuleColumns(pa.array([], id_type), pa.array([], pa.large_string()), annotations=annotations)


def _columns(compiled: CompiledRules) -> RuleColumns:
    """The rules of a full compile."""
    try:
        if not isinstance(compiled.texts, RuleTexts):
            raise ValueError("it keeps none")
        texts = compiled.texts.table(len(compiled)).combine_chunks()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArtifactError(f"The index's rules cannot be read ({error}); compile the rules again.") from error
    columns = [_one(texts.column(name)) for name in texts.column_names]
    bounds = [None if each.null_count == len(each) else each for each in columns[1:]]
    annotations = compiled.annotations.rules if compiled.annotations is not None else None
    return RuleColumns(compiled.ids, columns[0], bounds[0], bounds[1], annotations)


def _schema(compiled: CompiledRules) -> pa.Schema:
    """The schema that the rules of a full compile were written over."""
    try:
        if compiled.texts is None:
            raise ValueError("it keeps none")
        return compiled.texts.columns()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArtifactError(f"The index's columns cannot be read ({error}); compile the rules again.") from error


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _without(rules: RuleColumns, named: pa.Array) -> RuleColumns:
    others = pc.invert(pc.is_in(rules.ids, named)).to_numpy(zero_copy_only=False)
    return rules.chosen(np.flatnonzero(others))


def _merged(one: RuleColumns, other: RuleColumns) -> RuleColumns:
    """The rules of both, by ascending id; they have no id in common."""
    if not len(one) or not len(other):
        return one if len(one) else other
    place = places_of(one.ids, other.ids) + np.arange(len(other))
    order = np.empty(len(one) + len(other), np.int64)
    is_other = np.zeros(len(order), bool)
    is_other[place] = True
    order[place] = len(one) + np.arange(len(other))
    order[~is_other] = np.arange(len(one))
    taken = pa.array(order)

    def joined(first: pa.Array | None, second: pa.Array | None) -> Any:
        """A column of both, by ascending id; None if both lack it. Only bounds can be lacking."""
        if first is None and second is None:
            return None
        first, second = (
            pa.nulls(len(rules), pa.int64()) if each is None else each
            for rules, each in ((one, first), (other, second))
        )
        return pa.concat_arrays([first, second]).take(taken)

    return RuleColumns(
        joined(one.ids, other.ids),
        joined(one.expressions, other.expressions),
        joined(one.valid_from, other.valid_from),
        joined(one.valid_to, other.valid_to),
        None
        if one.annotations is None or other.annotations is None
        else pa.concat_tables([one.annotations, other.annotations]).take(taken),
    )


def _ordinals(ids: pa.Array, wanted: pa.Array) -> np.ndarray:
    """The indices [.] int64, ascending, of wanted ids in the ascending `ids`; ids that are not there are left out."""
    found = _found(ids, wanted.drop_null())
    return np.sort(found[found >= 0])


def _found(ids: pa.Array, wanted: pa.Array) -> np.ndarray:
    """The index [wanted] int64 of each wanted id in the ascending `ids`, -1 if it is not there."""
    if not len(ids):
        return np.full(len(wanted), -1)
    places = places_of(ids, wanted)
    inside = places < len(ids)
    same = pc.equal(ids.take(pa.array(places[inside])), wanted.filter(pa.array(inside)))
    places[~inside] = -1
    places[np.flatnonzero(inside)[~same.to_numpy(zero_copy_only=False)]] = -1
    return places


def _places_of_unchanged(base: CompiledRules, rules: RuleColumns, lists: Mapping[str, AnyList]) -> np.ndarray:
    """The ordinals [rules] int64 in the base of rules that are unchanged, else -1."""
    places = _found(base.ids, rules.ids)
    there = np.flatnonzero(places >= 0)
    digests = rule_digests(rules.chosen(there), lists)
    other = (digests != base.source.digests[places[there]]).any(axis=1)
    places[there[other]] = -1
    return places


def _only_unknown(analyse: Analyse, known: Sequence[Leaf]) -> Analyse:
    """Wraps `analyse`, so that it is not called for derived columns that Spark is known to accept."""
    accepted = set(known)

    def asked(leaves: Sequence[Leaf]) -> Sequence[RuleError | str | None]:
        unknown = [leaf for leaf in leaves if leaf not in accepted]
        answers = dict(zip(unknown, analyse(unknown) if unknown else (), strict=True))
        return [answers.get(leaf) for leaf in leaves]

    return asked


def _with_rejects(compiled: CompiledRules, refused: pa.Table) -> CompiledRules:
    table = _joined(refused, compiled.rejects)
    return replace(compiled, rejects=table, stats=compiled.stats | {"rejected": table.num_rows})


def _joined(one: pa.Table, other: pa.Table) -> pa.Table:
    """The rejects of both, in the order of `Rejects.table`."""
    if not one.num_rows:
        return other
    if not other.num_rows:
        return one.cast(other.schema)
    rejects = Rejects()
    for table in (one, other):
        rejects.rows += [tuple(row.values()) for row in table.to_pylist()]
    return rejects.table(other.schema.field(0).type)


__all__ = ["FEW_RULES", "FOLDED_SHARE", "update"]
