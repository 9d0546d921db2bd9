"""Finds rows of a source that no rule matched when they were tagged, and that some rule matches now. They are written
to the tagged table, which has only rows that rules match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rules_index.workers.retagged_rows import ReplacedIds, matched_ids, stamped
from rules_index.workers.table_files import Files
from rules_index.workers.tagged_files import joined
from rules_index.workers.task import Task

if TYPE_CHECKING:
    from rules_index.index.compiled import CompiledRules


def write_newly_matched(
    compiled: CompiledRules,
    former: Sequence[CompiledRules],
    replaced: ReplacedIds,
    task: Task,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> tuple[int, list[dict[str, Any]]]:
    """Writes the rows that a rule of `compiled` matches and no rule of the indexes `former` does. Returns their number,
    and the files' `add` entries.

    Batches have the columns that the indexes read, and `source_version`. schema: the columns of the tagged table; a
    column that batches lack is NULL. An `OSError` leaves no file behind.
    """
    files, rows = Files(task.folders["tagged"], task, task.layouts["tagged"]), 0
    try:
        for batch in joined(batches):
            found, ids = _newly_matched(compiled, former, replaced, batch)
            if len(found):
                rows += len(found)
                files.write(stamped(found, ids, replaced, task, schema))
        return rows, files.close()
    except BaseException:
        files.abandon()
        raise


def _newly_matched(
    compiled: CompiledRules, former: Sequence[CompiledRules], replaced: ReplacedIds, batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, pa.ListArray]:
    """Returns the newly matched rows of a batch, and the ids of the rules that match them."""
    ids = matched_ids(compiled, replaced, batch)
    new = _is_matched(ids)
    for each in former:
        kept = pa.array(np.flatnonzero(new))
        batch, ids = batch.take(kept), ids.take(kept)
        if not len(batch):
            return batch, ids
        new = ~_is_matched(matched_ids(each, replaced, batch))
    return batch.filter(pa.array(new)), ids.filter(pa.array(new))


def _is_matched(ids: pa.ListArray) -> np.ndarray:
    """Whether a row has ids, bool [row]."""
    found: np.ndarray = np.diff(ids.offsets.to_numpy()) > 0
    return found
