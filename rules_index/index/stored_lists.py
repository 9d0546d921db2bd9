"""Value lists in an artifact.

The base of a list, its arrays, is written into the artifact; or it stays in the artifact that it was loaded from
(`rules_index.index.shared_files`). So the versions of a long list share its base, and each version adds only its
difference from the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rules_index.domains.value_lists import Origin, ValueList, difference_of, list_type
from rules_index.index.array_checks import require
from rules_index.index.artifact import Sections
from rules_index.index.shared_files import ArtifactFiles, is_shared
from rules_index.index.stored_regions import regions_header, stored_regions
from rules_index.index.stored_sections import stored_table

if TYPE_CHECKING:
    import polars as pl


def origin_shared(each: ValueList) -> Origin | None:
    """The file that a list's base can stay in; None if the base must be written."""
    return each.origin if is_shared(sum(array.nbytes for array in each.regions.arrays.values())) else None


def list_header(each: ValueList, sections: Sections, is_shared: bool) -> dict[str, Any]:
    """Adds a list to the sections; returns its part of the header. is_shared: its base stays in the file that it was
    loaded from, if that is possible."""
    header = {"name": each.name, "values": each.count, "digest": each.digest, "rows": each.rows, "stamp": each.stamp}
    if each.counts is not None:
        header["counts"] = sections.table(each.counts.to_arrow().combine_chunks())
    origin = origin_shared(each) if is_shared else None
    if origin is None:
        return header | regions_header(each.regions, sections)
    return header | {"file": origin.file, "checksum": origin.checksum, "base": origin.digest}


class ListReader:
    """Reads the lists of one artifact, which may be in other files."""

    def __init__(self, files: ArtifactFiles) -> None:
        self._files = files

    def read(self, item: Mapping[str, Any], body: memoryview) -> ValueList:
        """The list that `list_header` wrote. Raises `ArtifactError` if the file that it refers to is missing, damaged
        or another one."""
        name, values, digest, rows, stamp = (item[each] for each in ("name", "values", "digest", "rows", "stamp"))
        require(all(isinstance(each, str) for each in (name, digest, stamp)), "lists")
        require(isinstance(values, int) and isinstance(rows, int), "lists")
        own = self._files.own
        if "file" in item:
            origin: Origin | None = Origin(item["file"], item["checksum"], item["base"])
            base, sections = self._base(item)
        else:
            origin = Origin(own.name, own.checksum, digest) if own is not None else None
            base, sections = item, body
        regions = stored_regions(base, sections)
        require(regions.count == 2 and list_type(regions.type) == regions.type, "lists")
        counts = _counts(item["counts"], body, regions.is_bytes) if "counts" in item else None
        difference = difference_of(regions, counts) if counts is not None else None
        return ValueList(name, values, digest, regions, difference, rows, counts, stamp, origin)

    def _base(self, item: Mapping[str, Any]) -> tuple[Mapping[str, Any], memoryview]:
        """The description of the list in another file that a list's header refers to, and the sections of that file.
        Raises `ValueError` if that file has no such list."""
        other = self._files.other(item["file"], item["checksum"])
        for part in (other.header, other.header.get("base", {}), other.header.get("changed", {})):
            for each in part.get("lists", ()):
                if (each["name"], each["digest"]) == (item["name"], item["base"]) and "arrays" in each:
                    return each, other.body
        raise ValueError(f"{item['file']} has no such list {item['name']!r:.60}")


def _counts(reference: Any, body: memoryview, is_bytes: bool) -> pl.DataFrame:
    import polars as pl

    counts = pl.DataFrame(pl.from_arrow(stored_table(reference, body)))
    require(counts.schema == {"key": pl.Binary if is_bytes else pl.Int64, "rows": pl.Int64}, "lists")
    keys = counts["key"]
    require(counts.null_count().sum_horizontal().sum() == 0 and bool((counts["rows"] >= 0).all()), "lists")
    require(len(keys) < 2 or bool((keys[1:] > keys[:-1]).all()), "lists")
    return counts
