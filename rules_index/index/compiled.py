"""A compiled rule set: matches batches, explains matches, and is updated and saved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.domains.region_codes import Regions
from rules_index.domains.value_lists import ValueList
from rules_index.errors import ArtifactError, RulesIndexError
from rules_index.index.annotations import Annotations
from rules_index.index.array_checks import InvalidArraysError
from rules_index.index.artifact import Sections, pieces_of, save
from rules_index.index.code_matrix import code_matrices, code_matrix, rows_at_once
from rules_index.index.engine import Matching
from rules_index.index.explanation import Explanation
from rules_index.index.inputs import as_table, read_leaf
from rules_index.index.rule_source import RuleSource
from rules_index.index.rule_texts import KeptTexts, RuleTexts
from rules_index.index.shared_files import SharedFile, is_shared
from rules_index.index.stored_lists import list_header, origin_shared
from rules_index.index.stored_regions import regions_header
from rules_index.language.serialise import to_json
from rules_index.language.typed import Expression, Leaf, lists_of

if TYPE_CHECKING:
    import polars as pl

    from rules_index.index.event_texts import EventReader
    from rules_index.index.row_codes import RowCoder


RuleId: TypeAlias = str | int
_UPDATE = "rules_index.compiling.update:update"
"""The function that makes the next version, by name, because its module imports this one."""


def rejects_schema(id_type: pa.DataType) -> pa.Schema:
    """The columns of a table of rejects (`compiling.rule_columns.Rejects.table`)."""
    return pa.schema([("rule_id", id_type), ("error", pa.string()), ("message", pa.string()), ("position", pa.int64())])


@dataclass
class CompiledRules:
    """An index over the rules of one scope.

    `ids` are the rules' ids in ascending order; a rule's ordinal is its index in them. `attributes` and `regions`
    correspond one to one, and `inputs` are the leaves that the attributes read. `raising` says which attributes of each
    rule may raise on a row, as CSR arrays (offsets [rules + 1], numbers of attributes). `texts` are the rules as their
    authors wrote them. `annotations` are what rows get besides ids; None if that was not asked for. `definition` is
    what the next version is made from: the rules of a full compile, or the layers of an update. `named_lists` are the
    value lists that rules name. It includes lists that no attribute reads, as in `a IN LIST('x') OR TRUE`, because an
    explanation and the next version need them.
    """

    ids: pa.Array
    inputs: tuple[Leaf, ...]
    attributes: Sequence[Expression]
    regions: Sequence[Regions]
    index: Matching
    raising: tuple[np.ndarray, np.ndarray]
    rejects: pa.Table
    fingerprint: str
    time_zone: str
    event_time: str | None
    stats: dict[str, Any]
    definition: RuleSource | Layers
    texts: KeptTexts | None = None
    errors: dict[RuleId, int] = field(default_factory=dict)
    annotations: Annotations | None = None
    named_lists: tuple[ValueList, ...] = ()

    @property
    def engine(self) -> str:
        """The engine in use."""
        return self.index.name

    @property
    def derived(self) -> tuple[Leaf, ...]:
        """The inputs that only Spark can evaluate; `match` needs a column of each one's name."""
        return tuple(leaf for leaf in self.inputs if leaf.text is not None)

    @cached_property
    def lists(self) -> dict[str, ValueList]:
        """The value lists that rules name, by name."""
        read = [each for attribute in self.attributes for each in lists_of(attribute)]
        return {each.name: each for each in (*self.named_lists, *read)}

    @property
    def source(self) -> RuleSource:
        """What a full compile keeps of its rules. Must not be called on an updated index."""
        assert isinstance(self.definition, RuleSource)
        return self.definition

    def __len__(self) -> int:
        """Number of rules."""
        return len(self.ids)

    def __repr__(self) -> str:
        return f"CompiledRules({len(self)} rules, engine {self.engine}, fingerprint {self.fingerprint[:12]})"

    def match(self, batch: pa.Table | pa.RecordBatch | pl.DataFrame) -> pa.ListArray:
        """The ids of the rules that each row satisfies: one list per row, ascending, empty if no rule matches.

        `batch` has at least the columns named by `inputs`; further columns are ignored. Large, view and dictionary
        variants of a type are accepted. Afterwards `errors` says, per rule, on how many rows of this batch one of its
        predicates raised. If several threads match, `errors` is that of the thread that finished last; `match_ordinals`
        returns each call's own. Raises `SchemaError` for a column that is missing or of another type.
        """
        offsets, ordinals, self.errors = self.match_ordinals(batch)
        if len(ordinals) > np.iinfo(np.int32).max:
            raise _too_many(offsets, "do not fit a list array")
        try:
            ids = self._ids_of(ordinals)
        except pa.ArrowInvalid:
            raise _too_many(offsets, "have ids of more than 2 GiB") from None
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), ids)

    def match_one(self, row: Mapping[str, Any]) -> list[RuleId]:
        """The ids of the rules that one row satisfies, ascending. Thread-safe.

        row: values by column, in Python's types; derived columns by name. A naive datetime for a TIMESTAMP is local to
        `time_zone`. The index's own structure is searched, and `errors` is not changed. Raises `SchemaError` for a
        column that is missing or a value that its type cannot hold, and `ArtifactError` for a stored structure that is
        malformed.
        """
        codes = self._row_coder.codes(row)
        try:
            rules, _ = self.index.search(codes)
        except InvalidArraysError as error:
            raise ArtifactError(f"The index is not consistent ({error}); compile the rules again.") from error
        return self._ids_of_few(rules)

    def match_event(self, expression: str) -> list[RuleId]:
        """The ids of the rules that an event matches, ascending. Thread-safe.

        expression: an event that is itself an expression: a conjunction whose parts are about one column each, such as
        `price BETWEEN 10 AND 20 AND kind <> 'a'`. It matches a rule if, for each attribute that the rule names, it
        offers a value (or NULL) that satisfies the rule (BE-Tree, section 3.2). It offers nothing for columns that it
        does not name, nor for what rules compute of columns (`a + b > 5`, `lower(a) = 'x'`, `a IN LIST('x')`). Columns
        that no rule reads are ignored. Raises `RuleError` for any other text, `ArtifactError` if a stored index is
        damaged.
        """
        event = self._event_reader.event(expression)
        if event is None:
            return []
        try:
            rules, _ = self.index.search_event(event)
        except InvalidArraysError as error:
            raise ArtifactError(f"The index is not consistent ({error}); compile the rules again.") from error
        return self._ids_of_few(rules)

    def explain(self, row: Mapping[str, Any], rule_id: RuleId, fixed: Collection[str] = ()) -> Explanation:
        """Why a rule matches a row, or does not: a tree of its predicates, each with its truth and the row's values.

        row: as for `match_one`, but only the columns that this rule reads are needed. fixed: columns that a near miss
        must not change, in any spelling. Raises `SchemaError` as `match_one` does, `UnknownRuleError` for a rule that
        the index does not have, `RulesIndexError` for an index without texts.
        """
        explain = resolve_name("rules_index.explaining.explain:explain")  # imported only when asked for
        found: Explanation = explain(self, row, rule_id, fixed)
        return found

    def match_ordinals(self, batch: Any) -> tuple[np.ndarray, np.ndarray, dict[RuleId, int]]:
        """Like `match`, but returns offsets [rows + 1] int64, rule ordinals [hits] int32 and the errors by rule id."""
        table = as_table(batch, self.inputs)
        offsets = [np.zeros(1, np.int64)]
        ordinals: list[np.ndarray] = []
        errors: dict[RuleId, int] = {}
        for codes, raised in self._code_chunks(table):
            ends, hits = self.index.match(codes)
            offsets.append(ends[1:] + offsets[-1][-1])
            ordinals.append(hits)
            for rule_id, rows in self._count_errors(raised).items():
                errors[rule_id] = errors.get(rule_id, 0) + rows
        return np.concatenate(offsets), np.concatenate([np.empty(0, np.int32), *ordinals]), errors

    def _code_chunks(self, table: pa.Table) -> Iterator[tuple[np.ndarray, dict[int, np.ndarray]]]:
        """What `codes` returns, for some rows at a time (`rows_at_once`)."""
        if not table.num_rows:  # a batch without rows must have the columns, too
            for leaf in self.inputs:
                read_leaf(table, leaf)
        at_once = rows_at_once(self.regions)
        for start in range(0, table.num_rows, at_once):
            # a slice of a table without columns does not limit itself to the rows that are left
            chunk = table.slice(start, min(at_once, table.num_rows - start))
            yield from code_matrices(self.attributes, self.regions, self.inputs, chunk)

    def codes(self, table: pa.Table) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """The code matrix [attributes, rows] of some rows; and for each attribute that raised, by number, on which
        rows, [rows] bool (`code_matrix`)."""
        return code_matrix(self.attributes, self.regions, self.inputs, table)

    def _count_errors(self, raised: Mapping[int, np.ndarray]) -> dict[RuleId, int]:
        """For each rule that raised, on how many rows: those on which at least one of its attributes raised. `raised`
        is as `codes` returns it."""
        if not raised:
            return {}
        rules, attributes = self._rules_that_use(raised)
        if not len(rules):
            return {}
        # rules that share their raising attributes raise on the same rows, which are counted once
        counts: dict[tuple[int, ...], int] = {}
        errors: dict[RuleId, int] = {}
        boundaries = np.flatnonzero(np.diff(rules)) + 1
        for rule, group in zip(np.unique(rules), np.split(attributes, boundaries), strict=True):
            key = tuple(group.tolist())
            if key not in counts:
                counts[key] = int(np.logical_or.reduce([raised[number] for number in key]).sum())
            errors[self.ids[int(rule)].as_py()] = counts[key]
        return errors

    def _rules_that_use(self, raised: Collection[int]) -> tuple[np.ndarray, np.ndarray]:
        """Each pair of a rule and one of the attributes `raised` that it uses: rules and attributes, both [pairs],
        ascending by rule."""
        starts, used = self.raising
        is_raised = np.isin(used, np.fromiter(raised, np.int64))
        rules, attributes = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[is_raised], used[is_raised]
        unforeseen = set(raised) - set(attributes.tolist())
        if not unforeseen:
            return rules, attributes
        # a fault of the library's own, in an attribute that cannot raise
        from rules_index.index.combined_engine import conjunctions_of

        conjunctions = conjunctions_of(self.index)
        naming = {attribute: conjunctions.rules_that_name(attribute) for attribute in sorted(unforeseen)}
        rules = np.concatenate([rules, *naming.values()])
        attributes = np.concatenate([attributes, *(np.full(len(each), n) for n, each in naming.items())])
        order = np.lexsort((attributes, rules))
        return rules[order], attributes[order]

    def _ids_of(self, ordinals: np.ndarray) -> pa.Array:
        """The ids of rules by their ordinals."""
        if pa.types.is_integer(self.ids.type):
            return pa.array(self.ids.to_numpy()[ordinals])
        return pc.take(self.ids, pa.array(ordinals), boundscheck=False)

    @cached_property
    def _row_coder(self) -> RowCoder:
        from rules_index.index.row_codes import RowCoder

        return RowCoder(self.attributes, self.regions, self.time_zone)

    @cached_property
    def _event_reader(self) -> EventReader:
        from rules_index.index.event_texts import EventReader

        return EventReader(self.attributes, self.regions, self.inputs, self.time_zone)

    @cached_property
    def _known_ids(self) -> np.ndarray:
        """The ids [rules] by ordinal. Integers are all there. Of strings only those that a single event has matched so
        far, because decoding all takes long; the others are None."""
        return self.ids.to_numpy() if pa.types.is_integer(self.ids.type) else np.full(len(self.ids), None, object)

    def _ids_of_few(self, ordinals: np.ndarray) -> list[RuleId]:
        """`_ids_of` as a list, for the matches of a single event."""
        known = self._known_ids
        found: list[RuleId] = known[ordinals].tolist()
        if known.dtype == object and None in found:
            found = self._ids_of(ordinals).to_pylist()
            known[ordinals] = found
        return found

    def update(
        self, changes: Any, analyse: Any = None, sample: Any = None, lists: Any = (), schema: Any = None
    ) -> CompiledRules:
        """The next version: this one with rules added, changed and removed; equal to a full compile of the result.

        changes: rules as `compile_rules` takes them, a table or pairs. Each id in them replaces all that this version
        has of that id, rejects included. A rule that is not enabled, or has no expression, is removed; it need not
        exist. So `[("new", "a > 1"), ("changed", "a > 2"), ("gone", None)]` adds or changes two rules and removes one.
        analyse, sample: as in `compile_rules`; only predicates that this version does not have are analysed. lists: the
        value lists that are new or whose values have changed; rules that name one of these count as changed. schema:
        the columns now, if columns that no rule of this version reads have been added or dropped.

        The cost depends on the number of changed rules while these are up to a tenth of all. Otherwise, if the index is
        small, and if an earlier version of deltatag compiled it that gave rules another meaning, all rules are
        compiled. This version stays as it is, also for other threads.
        Raises `RulesIndexError` if the changes cannot be read, `ArtifactError` if stored texts are malformed.
        """
        updated: CompiledRules = resolve_name(_UPDATE)(self, changes, analyse, sample, lists, schema)
        return updated

    def save(self, path: str | Path, shares_files: bool = False) -> None:
        """Writes the index as one file: first to a temporary file in the same folder, which is then renamed to `path`.

        shares_files: long lists, and the full compile that an updated index changes, stay in the files that they came
        from (`shared_files`), which must be in the same folder.
        """
        save(_pieces(self, shares_files), path)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return resolve_name("rules_index.index.loading:loads"), (dumps(self),)

    @property
    def list_files(self) -> list[str]:
        """The names, ascending, of the files that long lists stay in if the index is saved with `shares_files`."""
        layers = self.definition
        parts = (layers.base, layers.changed) if isinstance(layers, Layers) else (self,)
        shared = [origin_shared(each) for part in parts for each in part.lists.values()]
        return sorted({origin.file for origin in shared if origin is not None})

    @property
    def base_file(self) -> SharedFile | None:
        """The file that the full compile which an updated index changes stays in if it is saved with `shares_files`.
        None if that compile is in no file, or a small one, or this index is a full compile itself."""
        file = self.definition.base.source.file if isinstance(self.definition, Layers) else None
        return file if file is not None and is_shared(file.size) else None

    @property
    def shared_files(self) -> list[str]:
        """The names, ascending, of all files that the index refers to if it is saved with `shares_files`."""
        return sorted({*self.list_files, *([self.base_file.name] if self.base_file is not None else [])})


@dataclass(frozen=True)
class Layers:
    """The two indexes of which an updated index consists.

    base      a full compile
    left_out  [.] int64, ascending: the ordinals of the base's rules that have been changed or removed since
    changed   a full compile of the rules that have been added or changed since

    Each layer keeps its own texts and digests.
    """

    base: CompiledRules
    left_out: np.ndarray
    changed: CompiledRules


def _too_many(offsets: np.ndarray, why: str) -> RulesIndexError:
    """The error for the matches of a batch that one array cannot hold."""
    return RulesIndexError(
        f"{offsets[-1]:,} matches in one batch of {len(offsets) - 1:,} rows {why}; match fewer rows at a time."
    )


def dumps(compiled: CompiledRules) -> bytes:
    """The artifact's bytes. Those of equal indexes are equal, except for measured times."""
    return b"".join(_pieces(compiled))


def _pieces(compiled: CompiledRules, shares_files: bool = False) -> list[bytes | memoryview]:
    """The artifact's bytes, in pieces that need not be copied to one place."""
    sections = Sections()
    layers = compiled.definition
    header = {"fingerprint": compiled.fingerprint, "stats": compiled.stats, "rejects": sections.table(compiled.rejects)}
    if isinstance(layers, Layers):
        file = compiled.base_file if shares_files else None
        in_file = {"file": file.name, "checksum": file.checksum} if file is not None else None
        header["base"] = in_file or _full(layers.base, sections, shares_files)
        header["left_out"] = sections.array(layers.left_out)
        header["changed"] = _full(layers.changed, sections, shares_files)
    else:
        header |= _full(compiled, sections, shares_files)
    return pieces_of(header, sections)


def _full(compiled: CompiledRules, sections: Sections, shares_files: bool) -> dict[str, Any]:
    """The header of a full compile; adds its arrays and tables to the sections."""
    source = compiled.source
    header = {
        "time_zone": compiled.time_zone,
        "event_time": compiled.event_time,
        "engine": compiled.engine,
        "stats": compiled.stats,
        "inputs": [to_json(leaf) for leaf in compiled.inputs],
        "lists": [list_header(each, sections, shares_files) for each in compiled.lists.values()],
        "attributes": [
            {"expression": to_json(attribute), **regions_header(region, sections)}
            for attribute, region in zip(compiled.attributes, compiled.regions, strict=True)
        ],
        "index": {name: sections.array(array) for name, array in compiled.index.arrays.items()},
        "raising": [sections.array(array) for array in compiled.raising],
        "ids": sections.table(pa.table({"rule_id": compiled.ids})),
        "digests": sections.array(source.digests),
    }
    if compiled.annotations is not None:
        annotate = compiled.annotations.annotate
        rules = sections.table(compiled.annotations.rules)
        header["annotations"] = {"columns": annotate.columns, "severities": annotate.severities, "rules": rules}
    if isinstance(compiled.texts, RuleTexts):
        texts = compiled.texts
        header["texts"] = {"schema": sections.data(texts.schema), "blocks": [*map(sections.data, texts.blocks)]}
    return header
