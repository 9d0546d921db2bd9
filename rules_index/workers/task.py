"""What workers get beside the index and the rows, to write the rows of a micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from rules_index.index.annotations import Annotations
from rules_index.workers.delta_file_writer import Layout


@dataclass(frozen=True)
class Task:
    """How a micro-batch's rows are written.

    id_type       the type of rule ids in the tables
    columns       the source's columns in the tagged table
    keys          those of `columns` that each match repeats
    stamps        columns with one value for all rows, by name
    only_matched  whether rows without ids are left out
    codec         the compression of files
    footer        metadata in the footer of each file
    folders       by name, the folders of `tagged` and, if matches are kept and not yet written, of `matches`
    layouts       by the same names, how rows are stored in files
    annotations   what tagged rows get besides ids
    """

    id_type: pa.DataType
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    stamps: Mapping[str, pa.Scalar]
    only_matched: bool
    codec: str
    footer: Mapping[str, str]
    folders: Mapping[str, str]
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    annotations: Annotations | None = None
