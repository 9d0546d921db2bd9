"""Reads rules from the forms users give them in, a table or pairs, into columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import valid_texts
from rules_index.compiling.bounds import instants
from rules_index.compiling.rule_annotations import read_annotations, refused_annotations
from rules_index.domains.region_codes import plain
from rules_index.errors import RuleError, RulesIndexError
from rules_index.index.annotate import Annotate
from rules_index.index.compiled import RuleId, rejects_schema

Rules: TypeAlias = pa.Table | pa.RecordBatch | pl.DataFrame | Iterable[tuple[RuleId, str]]
MAX_ID = 1_000
"""Maximum characters of a rule's id: each row that the rule matches gets it."""
_BLOCK = 1 << 16
"""Pairs that become arrays at a time."""
_NO_ID = "The rule has no rule_id, or one that is not valid text; give it one that no other rule has."
_TOO_LARGE = "Rule ids that are integers must fit 64 bits with a sign; these do not."


@dataclass(frozen=True)
class RuleColumns:
    """Enabled rules by ascending id.

    ids                   [rules] string or int64, distinct
    expressions           [rules] large_string
    valid_from, valid_to  [rules] int64, microseconds since the epoch, NULL for unbounded; None if no rule is bounded
    annotations           [rules] the columns of `Annotate.schema`, None if none are asked for
    """

    ids: pa.Array
    expressions: pa.LargeStringArray
    valid_from: pa.Int64Array | None = None
    valid_to: pa.Int64Array | None = None
    annotations: pa.Table | None = None

    def __len__(self) -> int:
        """Number of rules."""
        return len(self.ids)

    def rule_id(self, rule: int) -> RuleId:
        """The id of a rule."""
        found: RuleId = self.ids[rule].as_py()
        return found

    def text(self, rule: int) -> str:
        """The text of a rule."""
        return str(self.expressions[rule].as_py())

    def validity(self, rule: int) -> tuple[int | None, int | None]:
        """The bounds from and to which a rule applies."""
        first, last = (None if bounds is None else bounds[rule].as_py() for bounds in (self.valid_from, self.valid_to))
        return first, last

    @property
    def bounded(self) -> np.ndarray:
        """Which rules [rules] bool have a bound."""
        found = np.zeros(len(self), bool)
        for bounds in (self.valid_from, self.valid_to):
            if bounds is not None:
                found |= bounds.is_valid().to_numpy(zero_copy_only=False)
        return found

    def chosen(self, places: np.ndarray) -> RuleColumns:
        """The rules with these numbers [.] int64, in this order."""
        if len(places) == len(self) and bool((np.diff(places) == 1).all()):
            return self
        columns: tuple[Any, ...] = (self.ids, self.expressions, self.valid_from, self.valid_to, self.annotations)
        return RuleColumns(*(None if column is None else column.take(pa.array(places)) for column in columns))


@dataclass
class Rejects:
    """Rules that do not compile, each with the reason and the 0-based position in its text."""

    rows: list[tuple[RuleId | None, str, str, int | None]] = field(default_factory=list)

    def add(self, rule_id: RuleId | None, error: RuleError) -> None:
        """Records why a rule is refused."""
        self.rows.append((rule_id, error.error, error.message, error.position))

    def table(self, id_type: pa.DataType) -> pa.Table:
        """Columns rule_id, error, message, position; by rule id."""
        rows = sorted(
            self.rows,
            key=lambda row: (
                row[0] is not None,
                row[0] if row[0] is not None else 0,
                row[1:3],
            ),
        )
        schema = rejects_schema(id_type)
        return pa.table(
            [pa.array([row[i] for row in rows], schema.field(i).type) for i in range(4)],
            schema=schema,
        )


def read_rules(rules: Rules, time_zone: str, annotate: Annotate | None = None) -> tuple[RuleColumns, Rejects]:
    """Returns the enabled rules by ascending id, with the annotations that are asked for, and the malformed ones as
    rejects.

    Every row of a repeated id is rejected. Raises `RulesIndexError` if the ids are of mixed types, or a column is
    missing or of another type.
    """
    rejects = Rejects()
    columns = _columns(rules, time_zone, rejects, annotate)
    named = columns.ids.is_valid().to_numpy(zero_copy_only=False)
    for _ in range(len(columns) - int(named.sum())):
        rejects.add(None, RuleError("NO_ID", _NO_ID))
    order = np.flatnonzero(named)
    ids = columns.ids.take(pa.array(order)) if not named.all() else columns.ids
    if len(ids) > 1 and not pc.all(pc.less(ids[:-1], ids[1:])).as_py():
        order = order[pc.sort_indices(ids).to_numpy()]
        order = _without_repeats(columns, order, rejects)
    written = columns.expressions.is_valid().to_numpy(zero_copy_only=False)
    for rule in order[~written[order]].tolist():
        rejects.add(columns.rule_id(rule), RuleError("NO_EXPRESSION", "The rule has no expression."))
    order = order[written[order]]
    refused = _too_long(columns.ids) | refused_annotations(columns.annotations, annotate)
    if refused:
        for rule in order[np.isin(order, list(refused))].tolist():
            rejects.add(columns.rule_id(rule), refused[rule])
        order = order[~np.isin(order, list(refused))]
    return columns.chosen(order), rejects


def _too_long(ids: pa.Array) -> dict[int, RuleError]:
    """The numbers of rules with a too long id, and the error for each."""
    if not pa.types.is_string(ids.type):
        return {}
    lengths = pc.fill_null(pc.utf8_length(ids), 0).to_numpy()
    message = "The rule_id has {:,} characters; the limit is {:,}."
    return {
        rule: RuleError("TOO_LONG", message.format(lengths[rule], MAX_ID))
        for rule in np.flatnonzero(lengths > MAX_ID).tolist()
    }


def _without_repeats(columns: RuleColumns, order: np.ndarray, rejects: Rejects) -> np.ndarray:
    """Rejects all rules with an id that occurs more than once. order: [.] int64, the numbers of rules by ascending id,
    which are returned without the rejected ones."""
    ids = columns.ids.take(pa.array(order))
    opens = np.ones(len(order) + 1, bool)
    opens[1:-1] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    single = opens[:-1] & opens[1:]
    bounds = np.flatnonzero(opens)
    lengths = np.diff(bounds)
    for first, count in zip(bounds[:-1][lengths > 1].tolist(), lengths[lengths > 1].tolist(), strict=True):
        rule_id = ids[first].as_py()
        message = f"rule_id {rule_id!r} is in {count} enabled rules; ids must be unique."
        for _ in range(count):
            rejects.add(rule_id, RuleError("DUPLICATE_ID", message))
    return order[single]


def as_rules_table(rules: Rules) -> pa.Table | None:
    """Rules given as a table or a frame, as a table; None for pairs. Raises `RulesIndexError` for a frame that Arrow
    cannot hold."""
    if isinstance(rules, pl.LazyFrame):
        rules = rules.collect()
    if isinstance(rules, pl.DataFrame):
        kinds = ", ".join(f"{name} {kind}" for name, kind in rules.schema.items())
        try:
            rules = rules.to_arrow()
        except pa.ArrowException as error:
            raise RulesIndexError(
                f"Arrow has no type for a column of the rules ({kinds}); cast it, or leave it out: {error}"
            ) from None
    if isinstance(rules, pa.RecordBatch):
        rules = pa.Table.from_batches([rules])
    return rules if isinstance(rules, pa.Table) else None


def pairs_of(rules: Any) -> Iterator[list[tuple[Any, Any]]]:
    """Yields rules that are given as pairs, in blocks. Raises `RulesIndexError` if they are not pairs."""
    message = (
        f"Rules are a pyarrow or Polars table, or pairs (rule_id, expression); these are a {type(rules).__name__}."
    )
    if isinstance(rules, (str, bytes, Mapping)) or not isinstance(rules, Iterable):
        raise RulesIndexError(message)
    remaining = iter(rules)
    while block := list(islice(remaining, _BLOCK)):
        kinds = {type(pair) for pair in block}
        try:
            if any(issubclass(kind, (str, bytes, Mapping)) for kind in kinds):
                raise TypeError("two letters, or the keys of a row with two columns, would be taken for a pair")
            pairs = [(rule_id, expression) for rule_id, expression in block]
        except (TypeError, ValueError):
            names = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise RulesIndexError(f"{message} Its items are {names}.") from None
        yield pairs


def _columns(rules: Rules, time_zone: str, rejects: Rejects, annotate: Annotate | None) -> RuleColumns:
    """The enabled rules, in the order given; rejects those with an expression that is not UTF-8."""
    table = as_rules_table(rules)
    if table is None:
        return _of_pairs(pairs_of(rules), rejects, annotate)
    rules = table
    _check_names(rules, ("priority", "labels", "severity") if annotate is not None else ())
    if "enabled" in rules.column_names:
        enabled = pc.fill_null(_truths(rules.column("enabled")), True)
        if not pc.all(enabled).as_py():
            rules = rules.filter(enabled)
    ids = read_ids(rules.column("rule_id"))
    expressions = rules.column("expression")
    if not _is_text(expressions.type):
        raise RulesIndexError(f"The rules' column expression is {expressions.type}; it must be a string.")
    given = plain(expressions, pa.large_string())
    texts = valid_texts(given)
    found = RuleColumns(
        ids,
        texts,
        instants(rules, "valid_from", time_zone),
        instants(rules, "valid_to", time_zone),
        read_annotations(rules, annotate) if annotate is not None else None,
    )
    if texts is given:
        return found
    is_invalid = pc.and_(given.is_valid(), texts.is_null()).to_numpy(zero_copy_only=False)
    for rule in np.flatnonzero(is_invalid).tolist():
        rejects.add(
            found.rule_id(rule), RuleError("SYNTAX", "The expression is not valid text: its bytes are not UTF-8.")
        )
    return found.chosen(np.flatnonzero(~is_invalid))


def _check_names(rules: pa.Table, others: Iterable[str]) -> None:
    names = rules.column_names
    for required in ("rule_id", "expression"):
        if required not in names:
            raise RulesIndexError(f"The rules have no column {required}; they need rule_id and expression.")
    for each in ("rule_id", "expression", "enabled", "valid_from", "valid_to", *others):
        if names.count(each) > 1:
            raise RulesIndexError(f"The rules have {names.count(each)} columns {each}; leave one of them.")


def _truths(enabled: pa.ChunkedArray) -> pa.ChunkedArray:
    data_type = enabled.type.value_type if pa.types.is_dictionary(enabled.type) else enabled.type
    if not (pa.types.is_boolean(data_type) or pa.types.is_null(data_type)):
        raise RulesIndexError(f"The rules' column enabled is {data_type}; it must be a Boolean.")
    return enabled.cast(pa.bool_())


def _is_text(data_type: pa.DataType) -> bool:
    t = pa.types
    if t.is_dictionary(data_type):
        return _is_text(data_type.value_type)
    return bool(t.is_string(data_type) or t.is_large_string(data_type) or t.is_string_view(data_type)) or t.is_null(
        data_type
    )


def read_ids(column: pa.ChunkedArray | list[Any]) -> pa.Array:
    """Rule ids as strings or as 64-bit integers; NULL for an id that is no valid text. Raises `RulesIndexError` for
    other types, or a mixture."""
    if isinstance(column, list):
        return _of_kinds(column)
    data_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if _is_text(data_type):
        return valid_texts(plain(column, pa.string()))
    if not pa.types.is_integer(data_type):
        return _of_kinds(column.to_pylist())
    try:
        return plain(column, pa.int64())
    except pa.ArrowInvalid:
        raise RulesIndexError(_TOO_LARGE) from None


def _of_kinds(ids: list[Any]) -> pa.Array:
    """Ids as one array. They must be all strings or all integers; a string that cannot be encoded becomes NULL."""
    kinds = {type(rule_id) for rule_id in ids if rule_id is not None}
    if all(issubclass(kind, str) for kind in kinds):
        try:
            return pa.array(ids, pa.string())
        except UnicodeEncodeError:
            return pa.array([None if each is None or _surrogate(each) else each for each in ids], pa.string())
    if bool not in kinds and all(issubclass(kind, Integral) for kind in kinds):
        try:
            return pa.array(ids, pa.int64())
        except OverflowError:
            raise RulesIndexError(_TOO_LARGE) from None
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise RulesIndexError(f"Rule ids must be all strings or all integers; these are {names}.")


def _of_pairs(blocks: Iterable[list[tuple[Any, Any]]], rejects: Rejects, annotate: Annotate | None) -> RuleColumns:
    """The rules of pairs, in the order given, without annotations of their own."""
    ids: list[Any] = []
    parts = [pa.array([], pa.large_string())]
    for block in blocks:
        named = [rule_id for rule_id, _ in block]
        texts = [expression for _, expression in block]
        try:
            try:
                parts.append(pa.array(texts, pa.large_string()))
            except UnicodeEncodeError:
                named, texts = _encodable(named, texts, rejects)
                parts.append(pa.array(texts, pa.large_string()))
        except pa.ArrowException:
            raise RulesIndexError("The expressions of rules must be strings.") from None
        ids += named
    known = _of_kinds(ids)
    bare = read_annotations(pa.table({"rule_id": known}), annotate) if annotate is not None else None
    return RuleColumns(known, pa.concat_arrays(parts), annotations=bare)


def _surrogate(text: str) -> UnicodeEncodeError | None:
    """The error that encoding a text raises, with the position of its first unpaired surrogate; None if it is valid."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error
    return None


def _encodable(ids: list[Any], texts: list[Any], rejects: Rejects) -> tuple[list[Any], list[Any]]:
    """Rejects the pairs with an unpaired surrogate in their text; returns the others."""
    kept: list[tuple[Any, Any]] = []
    for rule_id, text in zip(ids, texts, strict=True):
        error = _surrogate(text) if isinstance(text, str) else None
        if error is None:
            kept.append((rule_id, text))
            continue
        message = f"The character {text[error.start]!r} is half of a surrogate pair, which is not text."
        known = None if isinstance(rule_id, str) and _surrogate(rule_id) else rule_id
        rejects.add(known, RuleError("SYNTAX", message, error.start))
    return [rule_id for rule_id, _ in kept], [text for _, text in kept]
