"""How the rows of micro-batches were tagged, which must be known to find rows that match only now.

This concerns streams with `output = "matched"`, whose tagged tables lack the rows that no rule matched, and streams
that have had this setting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

from pipelines.errors import TableError
from pipelines.lake.index_histories import History, IndexHistories
from pipelines.lake.runs import MicroBatch
from pipelines.value_lists import LISTS

if TYPE_CHECKING:
    from pipelines.settings.model import Stream
    from pipelines.sources.positions import Add
    from pipelines.sources.source import Source
    from rules_index.domains.value_lists import AnyList


def left_rows_out(batches: Iterable[MicroBatch]) -> list[MicroBatch]:
    """The micro-batches of which the tagged table may lack rows, since only matched ones were written."""
    return [
        batch
        for batch in batches
        if batch.plan.get("output") == "matched" and batch.plan.get("files") and batch.rows != 0
    ]


def has_all_rows(stream: Stream, batches: Iterable[MicroBatch]) -> bool:
    """Whether the tagged table has all rows of a stream's micro-batches, and is meant to."""
    return stream.output == "all" and not left_rows_out(batches)


def refuse_other_output(stream: Stream, batches: Iterable[MicroBatch]) -> None:
    """TableError if rows of micro-batches were tagged with another `output` than the stream has now: rows that lose
    their last id are deleted by one, and kept by the other, so that rows would be lost or doubled later."""
    for batch in batches:
        former = batch.plan.get("output", stream.output)
        if former != stream.output and batch.plan.get("files") and batch.rows != 0:
            raise TableError(
                f'Rows of {stream.name} were tagged with output = "{former}", and it has output = "{stream.output}" '
                f"now, so which of its rows are in its table would not be known after a re-tag. "
                f"{restart_advice(stream)}holds now."
            )


def refuse_removed(source: Source, stream: Stream, batches: Iterable[MicroBatch], files: Iterable[Add]) -> None:
    """TableError if one of these files was removed by a commit that was skipped: its rows may have been deleted since,
    and would come back."""
    skipped = [batch.plan for batch in batches if batch.plan.get("skipped")]
    versions = {v for plan in skipped for v in range(plan["start"]["version"], plan["end"]["version"])}
    removed = {
        action["remove"]["path"]
        for version in versions
        for action in source.log.commit(version) or ()
        if "remove" in action and action["remove"].get("dataChange", True)
    }
    if any(add["path"] in removed for _, add in files):
        raise TableError(
            f"Rows of {stream.name} that match only now are read from the files that the source had when they were "
            "tagged. A commit that was skipped has changed or removed rows of these, and deleted rows would come back. "
            f"{restart_advice(stream)}holds now."
        )


def history_of(stream: Stream, histories: IndexHistories, batch: MicroBatch) -> History:
    """The indexes that tagged a micro-batch's rows; TableError if they are not known, or not the same for all rows."""
    found = histories.of_batch(batch)
    if len(found) != 1:
        raise TableError(
            f"Which rows of micro-batch {batch.batch} of {stream.name} are in its table is not known any more. "
            f"{restart_advice(stream)}holds now."
        )
    return next(iter(found))


def with_lists(
    stream: Stream, base: pl.DataFrame, lists: Iterable[AnyList]
) -> list[tuple[pl.DataFrame, list[AnyList]]]:
    """The rules of `base`, each part with the value lists as they were when its rules tagged rows.

    There are several parts only if two rules had different values of the same list. lists: all that are known.
    TableError if those values are not known.
    """
    known = {f"{each.name}={each.digest}": each for each in lists}
    parts: list[tuple[list[str], dict[str, AnyList]]] = [([], {})]
    for text in base[LISTS].drop_nulls().unique().sort():
        # what a rule has only as a text, as in `v = 'LIST("x")'`, may be no list: it has no digest
        wanted = [each for each in text.split(",") if not each.endswith("=")]
        if not known.keys() >= set(wanted):
            raise TableError(
                f"{stream.name} keeps only rows that match, and a list that its rules name has changed since they were "
                f"tagged: which rows matched is not known without its former values. {restart_advice(stream)}holds now."
            )
        named = {known[each].name: known[each] for each in wanted}
        part = next((each for each in parts if all(each[1].get(n, found) == found for n, found in named.items())), None)
        if part is None:
            parts.append(part := ([], {}))
        part[0].append(text)
        part[1].update(named)
    rest = base.filter(pl.col(LISTS).is_null())
    found = [(base.filter(pl.col(LISTS).is_in(texts)), [*values.values()]) for texts, values in parts]
    return [(pl.concat([rest, found[0][0]]), found[0][1]), *found[1:]]


def restart_advice(stream: Stream) -> str:
    """The beginning of a sentence that says what to do if rows that match only now cannot be found."""
    return f"Tag everything again with: deltatag tag {stream.name} --restart, which processes what the source "
