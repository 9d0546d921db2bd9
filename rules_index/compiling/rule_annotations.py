"""Reads the priority, labels and severity of rules, which users can give in several forms."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import as_lists, offsets_of
from rules_index.errors import RuleError, RulesIndexError
from rules_index.index.annotate import Annotate
from rules_index.index.nested_columns import plain_nested
from rules_index.language.coercion import normalise, spark_type
from rules_index.language.patterns.strings import decodable
from rules_index.names import did_you_mean

_SEVERITY_LABELS = ("severity", "level")
"""Labels that give a rule's severity if it has no column for it; the second is Sigma's."""
MAX_LABELS = 10_000
"""Maximum characters of all labels of a rule: each row that the rule matches gets them."""


def read_annotations(rules: pa.Table, annotate: Annotate) -> pa.Table:
    """Returns the columns of `annotate.schema`; the rules' columns priority, labels and severity are each optional.

    Labels are given as a list of texts, a text with commas, or a mapping. An entry of a mapping becomes the label
    `key=value`, or `key` if it has no value. The labels of a rule are sorted and distinct. A rule without severity has
    the one in its label `severity` or `level`. Bytes that are not UTF-8 are read as U+FFFD. Raises `RulesIndexError`
    for a column of another type.
    """
    found: dict[str, pl.Series] = {}
    wanted = annotate.schema.names
    labels = _column(rules, "labels")
    if "priority" in wanted:
        priority = _column(rules, "priority", pl.Int32)
        if not (priority.dtype.is_integer() or priority.dtype == pl.Null):
            raise RulesIndexError(f"The rules' column priority is {spark_type(priority)}; it must be an integer.")
        # a priority that an INT cannot hold becomes the nearest one: an error would stop all other rules
        found["priority"] = priority.cast(pl.Int128).clip(-(1 << 31), (1 << 31) - 1).cast(pl.Int32)
    if "labels" in wanted:
        found["labels"] = _texts(labels)
    if "severity" in wanted:
        severity = _column(rules, "severity", pl.String)
        if severity.dtype not in (pl.String, pl.Null):
            raise RulesIndexError(f"The rules' column severity is {spark_type(severity)}; it must be a text.")
        found["severity"] = _severity(severity.cast(pl.String), labels)
    columns = [found[field.name].to_arrow().cast(field.type) for field in annotate.schema]
    return pa.table(columns, schema=annotate.schema) if columns else rules.select([])


def refused_annotations(rules: pa.Table | None, annotate: Annotate | None) -> dict[int, RuleError]:
    """The numbers of rules with an unknown severity or too long labels, and the error for each."""
    refused: dict[int, RuleError] = {}
    if rules is None or annotate is None:
        return refused
    if "labels" in rules.column_names:
        labels = pl.DataFrame({"l": pl.from_arrow(rules.column("labels"))})
        lengths = labels.select(pl.col("l").list.eval(pl.element().str.len_chars()).list.sum())["l"]
        refused |= {place: _too_long(lengths[place]) for place in (lengths > MAX_LABELS).arg_true()}
    if "severity" in rules.column_names:
        severity = pl.Series(pl.from_arrow(rules.column("severity")))
        known = list(annotate.severities)
        places = np.flatnonzero((severity.is_not_null() & ~severity.is_in(known)).to_numpy())
        refused |= {place: _unknown(str(severity[place]), known) for place in places.tolist()}
    return refused


def texts(rules: pa.Table) -> pl.Series:
    """The annotations of each rule as a JSON text. Equal annotations have equal texts."""
    frame = pl.DataFrame(pl.from_arrow(rules))
    if not frame.width:
        return pl.Series("annotations", [""] * rules.num_rows, pl.String)
    return frame.select(pl.struct(pl.all()).struct.json_encode().alias("annotations"))["annotations"]


def _too_long(length: int) -> RuleError:
    return RuleError("TOO_LONG", f"The rule's labels have {length:,} characters; the limit is {MAX_LABELS:,}.")


def _unknown(severity: str, known: list[str]) -> RuleError:
    hint = did_you_mean(severity, known, f"; there are: {', '.join(known)} (severities in [rules]).")
    return RuleError("UNKNOWN_SEVERITY", f"There is no severity {severity[:200]!r}{hint}")


def _column(rules: pa.Table, name: str, kind: type[pl.DataType] = pl.Null) -> pl.Series:
    if name not in rules.column_names:
        return pl.Series(name, [None] * rules.num_rows, kind)
    column = rules.column(name)
    wanted = normalise(column.type) if pa.types.is_nested(column.type) else None
    if wanted is not None:  # Polars cannot read views of lists
        column = pa.chunked_array([plain_nested(chunk, wanted) for chunk in column.chunks] or [pa.array([], wanted)])
    found = pl.Series(name, pl.from_arrow(as_lists(column)))
    if found.dtype in (pl.Categorical, pl.Enum):
        found = found.cast(pl.String)
    held = found.to_arrow()
    try:
        held.validate(full=True)
    except pa.ArrowInvalid:
        found = pl.Series(name, pl.from_arrow(_decodable(held)))
    return found


def _decodable(values: pa.Array) -> pa.Array:
    """The values with U+FFFD in place of bytes that are not UTF-8, at all depths: Polars would end the process."""
    nulls = values.is_null()
    if pa.types.is_large_list(values.type):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        return pa.LargeListArray.from_arrays(offsets_of(lengths), _decodable(values.flatten()), mask=nulls)
    if pa.types.is_struct(values.type):
        return pa.StructArray.from_arrays(
            [_decodable(each) for each in values.flatten()], values.type.names, mask=nulls
        )
    return decodable(values)


def _entries(labels: pl.Series) -> pl.DataFrame | None:
    """The entries of labels that are mappings: columns `place` (the rule's number), `key` and `value`; None for other
    labels."""
    inner = labels.dtype.inner if isinstance(labels.dtype, pl.List) else None
    if not isinstance(inner, pl.Struct) or len(inner.fields) != 2:
        return None
    if any(field.dtype.is_nested() or field.dtype == pl.Binary for field in inner.fields):
        raise RulesIndexError("The rules' column labels is a map; its keys and values must be texts, numbers or times.")
    key, value = (field.name for field in inner.fields)
    frame = pl.DataFrame({"entry": labels}).with_row_index("place").explode("entry").drop_nulls("entry")
    return frame.select(
        "place",
        pl.col("entry").struct.field(key).cast(pl.String).alias("key"),
        pl.col("entry").struct.field(value).cast(pl.String).alias("value"),
    )


def _texts(labels: pl.Series) -> pl.Series:
    """The labels of each rule as a list of texts."""
    entries = _entries(labels)
    if entries is not None:
        text = pl.when(pl.col("value").is_null()).then("key").otherwise(pl.col("key") + "=" + pl.col("value"))
        grouped = entries.select("place", text.alias("labels")).group_by("place").agg("labels")
        places = pl.DataFrame({"place": pl.Series(range(len(labels)), dtype=entries.schema["place"])})
        found = places.join(grouped, on="place", how="left", maintain_order="left")["labels"]
    elif labels.dtype == pl.String:
        found = pl.DataFrame({"l": labels}).select(
            pl.col("l").str.split(",").list.eval(pl.element().str.strip_chars(" ")).list.eval(
                pl.element().filter(pl.element() != "")
            )
        )["l"]  # fmt: skip
    elif labels.dtype in (pl.List(pl.String), pl.Null, pl.List(pl.Null)):
        found = labels.cast(pl.List(pl.String))
    else:
        raise RulesIndexError(f"The rules' column labels is {spark_type(labels)}; it must be a map, a list or a text.")
    lists = pl.DataFrame({"l": found}).select(pl.col("l").list.drop_nulls().list.unique().list.sort())["l"]
    return lists.fill_null(pl.Series([[]], dtype=pl.List(pl.String)))


def _severity(severity: pl.Series, labels: pl.Series) -> pl.Series:
    """The severity of each rule: from its column, or else from its labels."""
    entries = _entries(labels)
    if entries is None:
        return severity
    found = severity
    for name in _SEVERITY_LABELS:
        labelled = entries.filter(pl.col("key") == name).unique("place", keep="first")
        places = pl.DataFrame({"place": pl.Series(range(len(labels)), dtype=entries.schema["place"])})
        from_labels = places.join(labelled, on="place", how="left", maintain_order="left")["value"]
        found = pl.DataFrame({"a": found, "b": from_labels}).select(pl.coalesce("a", "b"))["a"]
    return found
