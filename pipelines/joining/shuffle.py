"""Shuffles the rows of a join's sides: rows that can join meet in one partition, in the order of time.

Rows are partitioned by key. A key with very many rows is also divided by time (`hot_keys`): each slice owns the rows
within it, and gets copies of earlier rows that a window reaches from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import (
    CharType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipelines.errors import SourceError
from pipelines.joining import partitioning
from pipelines.joining.hot_keys import HotKey, key_columns, placed_slices
from pipelines.lake.column_types import CHAR_TYPE, plain_fields
from pipelines.spark.arrow_batches import map_batches
from rules_index.join.window_partners import FARTHEST
from rules_index.join.worker import KEY, OWNED, STREAM, TIME, JoinTask, own_column
from rules_index.names import back_quoted

if TYPE_CHECKING:
    from pipelines.joining.sides import SideFiles
    from pipelines.settings.model import Join

ROWS = 1 << 18
"""About how many rows a partition has, if there are enough."""
_CHAR = re.compile(r"char\((\d+)\)")
_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def key_types(join: Join, sides: Sequence[SideFiles]) -> list[DataType]:
    """The type as which each column of the key is compared; SourceError if there is none."""
    return [
        _common_type([_key_type(_field(side.schema, join.on[side.stream.name][place])) for side in sides], join.name)
        for place in range(len(join.on[join.streams[0]]))
    ]


def event_time(column: Column) -> Column:
    """Microseconds since 1970; a date is its midnight, a wall time its instant in the session's time zone."""
    return functions.unix_micros(column.cast("timestamp"))


def side_rows(rows: DataFrame, number: int, join: Join, side: SideFiles, types: Sequence[DataType]) -> DataFrame:
    """Rows of a stream in the form of `rules_index.join.worker`; those without event time or key, and those whose
    event time is as far from 1970 as `FARTHEST`, are left out."""
    name = side.stream.name
    names = [field.name for field in side.schema.fields]
    assert side.stream.event_time is not None
    columns = [
        functions.lit(number).cast("tinyint").alias(STREAM),
        event_time(functions.col(back_quoted(side.stream.event_time))).alias(TIME),
        *(
            _comparable(functions.col(back_quoted(column)), kind).alias(f"{KEY}{place}")
            for place, (column, kind) in enumerate(zip(join.on[name], types, strict=True))
        ),
        functions.struct(*(functions.col(back_quoted(column)) for column in names)).alias(name),
    ]
    needed = [TIME, *(f"{KEY}{place}" for place in range(len(types)))]
    # not dropna, which treats NaN as NULL
    present = reduce(Column.__and__, [functions.col(back_quoted(column)).isNotNull() for column in needed])
    return rows.select(*columns).filter(present & functions.col(back_quoted(TIME)).between(1 - FARTHEST, FARTHEST - 1))


def flat(rows: DataFrame, side: SideFiles) -> DataFrame:
    """Rows of `side_rows` with the fields of the STRUCT as columns."""
    name = side.stream.name
    own = [
        functions.col(back_quoted(name)).getField(field.name).alias(own_column(name, field.name))
        for field in side.schema.fields
    ]
    others = [functions.col(back_quoted(column)) for column in rows.columns if column != name]
    return rows.select(*others, *own)


def joined_schema(sides: Sequence[SideFiles], id_type: str) -> StructType:
    """The schema of joined rows: one STRUCT per stream, and `rule_ids`."""
    element = {"string": "string", "bigint": "bigint"}[id_type]
    ids = StructType.fromDDL(f"rule_ids array<{element}>")
    assert isinstance(ids, StructType)
    structs = [
        {
            "name": side.stream.name,
            "type": {"type": "struct", "fields": plain_fields(side.schema.jsonValue()["fields"])},
        }
        for side in sides
    ]
    return StructType([*map(StructField.fromJson, structs), *ids.fields])


def partitions(spark: SparkSession, rows: int | None) -> int:
    """How many partitions to use for `rows` rows; None: their number is unknown."""
    if rows is None:
        return int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    cores = int(spark.sparkContext.defaultParallelism)
    return max(min(cores, -(-rows // partitioning.MIN_PARTITION_ROWS)), -(-rows // ROWS), 1)


def shuffled(rows: DataFrame, join: Join, keys: int, count: int, hot: Sequence[HotKey] = ()) -> tuple[DataFrame, int]:
    """The rows in `count` partitions, sorted by time within each; and how many columns the key now has.

    Every joined row can be found in exactly one partition. With `hot` keys the slice is one more column of the key.
    """
    if hot:
        partitioned, keys = placed_slices(rows, join, keys, count, hot)
    else:
        rows = rows.withColumn(OWNED, functions.lit(True))
        partitioned = rows.repartition(count, *key_columns(keys)) if count > 1 else rows.coalesce(1)
    return partitioned.sortWithinPartitions(back_quoted(TIME)), keys


def join_partitions(frame: DataFrame, file: Callable[[], str], task: JoinTask, schema: StructType) -> DataFrame:
    """The joined rows that satisfy a rule, computed by Spark's Python workers."""
    return map_batches(frame, _joiner(file, task), schema)


def _joiner(file: Callable[[], str], task: JoinTask) -> Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]:
    """The function that workers run. It is pickled by value, so that they need no module of `pipelines`."""

    def join(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        from rules_index.join import worker

        yield from worker.join_partition(worker.open_join(file(), task.streams), task, batches)

    return join


def union_by_name(frames: Sequence[DataFrame], columns: Sequence[str]) -> DataFrame:
    """The union of the frames by name; columns that a frame lacks are NULL."""
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    return rows.select(*(functions.col(back_quoted(name)) for name in columns))


def with_keys_of(earlier: DataFrame, new: Sequence[DataFrame], keys: int) -> DataFrame:
    """The earlier rows that have the key of a new row: a semi-join with a broadcast of the new keys."""
    wanted = reduce(DataFrame.union, [rows.select(*key_columns(keys)) for rows in new])
    names = [f"{KEY}{place}" for place in range(keys)]
    return earlier.join(functions.broadcast(wanted.distinct()), names, "left_semi")


def _comparable(column: Column, kind: DataType) -> Column:
    if isinstance(kind, CharType):
        return functions.rpad(column, kind.length, " ")
    column = column.cast(kind)
    if isinstance(kind, DoubleType):
        # NaNs, and the two zeros, are equal in SQL although their bits differ
        nan = functions.lit(float("nan"))
        return functions.when(functions.isnan(column), nan).otherwise(column + functions.lit(0.0))
    return column


def _common_type(kinds: Sequence[DataType], join: str) -> DataType:
    numbers = (IntegralType, FloatType, DoubleType, DecimalType)
    if any(isinstance(kind, (FloatType, DoubleType)) for kind in kinds):
        return DoubleType()
    if len({kind.simpleString() for kind in kinds}) == 1:
        return kinds[0]
    if all(isinstance(kind, numbers) for kind in kinds):
        digits = max(_digits(kind)[0] for kind in kinds)
        scale = max(_digits(kind)[1] for kind in kinds)
        if digits + scale > 38:
            listed = ", ".join(kind.simpleString() for kind in kinds)
            raise SourceError(f"The join {join} has keys of types that no decimal can hold together: {listed}.")
        return DecimalType(digits + scale, scale)
    if all(isinstance(kind, CharType) for kind in kinds):
        return CharType(max(kind.length for kind in kinds if isinstance(kind, CharType)))
    if any(isinstance(kind, (StringType, CharType)) for kind in kinds):
        return StringType()
    if not any(isinstance(kind, TimestampType) for kind in kinds):
        # in a zone, some wall times are no instant, and others are two
        return TimestampNTZType()
    return TimestampType()


def _digits(kind: DataType) -> tuple[int, int]:
    """Digits before and after the decimal point."""
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    return _INTEGER_DIGITS[kind.typeName()], 0


def _key_type(field: StructField) -> DataType:
    """The type of a column; CHAR is distinguished from other strings."""
    length = _CHAR.fullmatch(str(field.metadata.get(CHAR_TYPE, "")).lower())
    return CharType(int(length[1])) if length else field.dataType


def _field(schema: StructType, name: str) -> StructField:
    return next(field for field in schema.fields if field.name.lower() == name.lower())
