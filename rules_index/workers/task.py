"""How the rows of a micro-batch are written: what workers get beside the index and the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from rules_index.index.annotations import Annotations
from rules_index.workers.delta_file_writer import Layout


@dataclass(frozen=True)
class Task:
    """How a micro-batch's rows are written.

    `columns` are the source's columns in the tagged table, `keys` those of them that a match repeats. `stamps` are
    columns with the same value in all rows. `folders` has, by name, `tagged` and, if matches are kept and not yet
    written, `matches`; `layouts` how the rows of these are stored; `annotations` what tagged rows get besides ids.
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
