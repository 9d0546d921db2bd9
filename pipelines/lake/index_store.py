"""Indexes in the table `rule_index`: one commit per index, chunks of 8 MiB, checked against their SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

import rules_index as ri
from pipelines.error_texts import is_out_of_reach, is_refused
from pipelines.errors import IndexDamagedError, IndexOutdatedError, NoIndexError, TableError, not_written
from pipelines.lake.folder_snapshot import FolderSnapshot
from pipelines.lake.index_files import chunks_of, write_chunks
from pipelines.lake.lake import Lake, arrow_schema
from pipelines.lake.plain_tables import is_plain
from pipelines.lake.reading import literal
from pipelines.lake.runs import PLANNED, last_batch
from pipelines.scratch import indexes_folder, keep, new_file
from pipelines.table_definitions import CHUNK_BYTES, RULE_INDEX
from rules_index.index.checksum_cache import sha256_once

_DESCRIPTION = [c.name for c in RULE_INDEX.columns if c.name not in ("data", "chunk")]
_ATTEMPTS = 10
_LATER = timedelta(microseconds=1)
LIST_FILES, BASE_FILE, LISTS, KEPT = "list_files", "base_file", "lists", "kept"
"""Keys of an index's statistics; `StoredIndex` says what they hold."""


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """What `rule_index` says about one index, without its bytes."""

    scope: str
    rules_version: int
    fingerprint: str
    engine: str
    format_version: int
    sha256: str
    bytes: int
    chunks: int
    statistics: Mapping[str, Any]
    created_at: datetime

    @property
    def rules(self) -> int:
        """How many rules it has."""
        return int(self.statistics.get("rules", 0))

    @property
    def rejected(self) -> int | None:
        """How many rules were rejected when it was compiled."""
        return self.statistics.get("rejected")

    @property
    def columns(self) -> Mapping[str, str]:
        """The types of the scope's columns, by name, for which it was compiled."""
        return self.statistics.get("columns", {})

    @property
    def kept(self) -> Mapping[str, int]:
        """Each duplicate id -> the version of `rules` from which it was taken."""
        return self.statistics.get(KEPT, {})

    @property
    def lists(self) -> Mapping[str, Sequence[Any]]:
        """The versions of the lists that its rules name (`value_lists.Versions`)."""
        return self.statistics.get(LISTS, {})

    @property
    def shared_files(self) -> list[str]:
        """The file names of older indexes of the scope that hold long value lists of this one, or the rules that it has
        in common with them. Its file can only be loaded with these files beside it."""
        return shared_files(self.statistics)

    @property
    def needs_spark(self) -> str | None:
        """Why only Spark evaluates its rules, as a clause; None if deltatag does."""
        return self.statistics.get("needs_spark") or None

    @property
    def implied_by(self) -> str | None:
        """The fingerprint of the origin's index whose rules imply those of this one: each row that matches one of these
        rules also matches one of the origin's. None if nothing must be implied."""
        return self.statistics.get("implied_by")


def newest_index(
    lake: Lake, scope: str, fingerprint: str | None = None, rules_version: int | None = None
) -> StoredIndex | None:
    """The scope's newest index, of one fingerprint or version of the rules if given; None if there is none.

    IndexDamagedError if the table cannot be read.
    """
    filters: list[tuple[str, Any]] = [("scope", scope), ("chunk", 0)]
    if fingerprint is not None:
        filters.append(("fingerprint", fingerprint))
    if rules_version is not None:
        filters.append(("rules_version", rules_version))
    with _damage(scope):
        return _newest(lake, filters)


def _newest(lake: Lake, filters: list[tuple[str, Any]]) -> StoredIndex | None:
    table = lake.delta("rule_index")
    kept = lake.indexes_read  # one look, since another thread may replace it
    if kept is None or kept[0] is not table:
        kept = lake.indexes_read = table, {}
    asked = tuple(filters)
    if asked not in kept[1]:
        kept[1][asked] = max(_stored(lake, filters), key=_age, default=None)
    found: StoredIndex | None = kept[1][asked]
    return found


def _stored(lake: Lake, filters: list[tuple[str, Any]]) -> list[StoredIndex]:
    rows = lake.arrow("rule_index", _DESCRIPTION, filters).to_pylist()
    return [StoredIndex(**{**row, "statistics": json.loads(row["statistics"])}) for row in rows]


def _age(stored: StoredIndex) -> tuple[datetime, int]:
    return stored.created_at, stored.rules_version


def indexes_by_fingerprint(lake: Lake, scope: str) -> dict[str, StoredIndex]:
    """The newest index of each fingerprint that a scope has; one query for all. IndexDamagedError as `newest_index`."""
    with _damage(scope):
        found = _stored(lake, [("scope", scope), ("chunk", 0)])
    return {each.fingerprint: each for each in sorted(found, key=_age)}


def index_to_tag_with(lake: Lake, scope: str, fingerprint: str | None = None) -> StoredIndex:
    """Like `newest_index`, but NoIndexError if there is none."""
    found = newest_index(lake, scope, fingerprint)
    if found is None:
        which = f" with the fingerprint {fingerprint}" if fingerprint else ""
        raise NoIndexError(
            f"The scope {scope} has no index{which} to tag with. Make it with: deltatag compile {scope}. If "
            'on_reject is "hold", first correct its rules that rule_rejects lists.'
        )
    return found


def load_former(lake: Lake, scope: str, fingerprint: str) -> ri.CompiledRules | None:
    """An index that tagged earlier rows; None if it is gone or damaged, or another version of deltatag wrote it."""
    try:
        stored = newest_index(lake, scope, fingerprint)
        return None if stored is None else ri.load(fetch_index(lake, stored))
    except (IndexDamagedError, ri.ArtifactError):
        return None


def load_planned(lake: Lake, scope: str, fingerprint: str, command: str) -> tuple[StoredIndex, ri.CompiledRules, Path]:
    """The index of a planned micro-batch, and its file; IndexOutdatedError, which says what to do, if it is gone."""
    try:
        stored = index_to_tag_with(lake, scope, fingerprint)
        path = fetch_index(lake, stored)
        return stored, ri.load(path), path
    except (NoIndexError, IndexDamagedError, ri.ArtifactError) as error:
        raise IndexOutdatedError(
            f"The unfinished micro-batch of {scope} needs the index {fingerprint[:12]} that it was planned with, which "
            f"cannot be read: {error} If another version of deltatag planned it, finish it with that version. "
            f"Otherwise compile the rules (deltatag compile {scope}): a micro-batch that has written no rows yet then "
            f"continues with the new index. If it has written some, process the whole source again: {command} --restart"
        ) from error


def store_index(
    lake: Lake,
    scope: str,
    rules_version: int,
    fingerprint: str,
    engine: str,
    path: Path,
    statistics: Mapping[str, Any],
    from_scratch: bool = False,
) -> StoredIndex:
    """Write the index file at `path` as the scope's newest, in one commit.

    If a concurrent run has stored the same index first, that one is returned. `from_scratch` drops the scope's older
    indexes in the same commit, even if their files are damaged; the index of an unfinished micro-batch is kept, with
    those that hold parts of it. TableError if the table cannot be written, or has lost a file that the index shares.
    """
    size = path.stat().st_size
    stored = StoredIndex(
        scope, rules_version, fingerprint, engine, format_version_of(statistics), sha256_once(path),
        size, -(-size // CHUNK_BYTES), statistics, datetime.now(UTC),
    )  # fmt: skip
    # if several runs store the same index at once, one of them commits, and the others find its index
    mark = f"deltatag/index/{scope}/{fingerprint}", time.time_ns()
    for attempt in range(_ATTEMPTS):
        # opened before the newest index is looked up: a commit in between is then a conflict
        snapshot = FolderSnapshot(lake.uri("rule_index"), lake.writable("rule_index"))
        kept: list[tuple[StoredIndex, Path]] = []
        if from_scratch:
            kept = _unfinished(lake, scope, fingerprint)
            before = [each.created_at for each, _ in kept]
        else:
            found = newest_index(lake, scope)
            if found is not None and (found.fingerprint, found.engine) == (fingerprint, engine):
                return found
            before = [] if found is None else [found.created_at]
            if any(_by_name(lake, scope, name) is None for name in stored.shared_files):
                raise TableError(f"Another process has compiled the rules of {scope} by force; compile them again.")
        # the newest index has the latest time, also if the clock was set back, or that of another machine is ahead
        stored = replace(stored, created_at=max([stored.created_at, *(each + _LATER for each in before)]))
        chunks = chain(*(_chunks(*each) for each in kept), _chunks(stored, path))
        write = write_chunks if is_plain(snapshot.table, RULE_INDEX) else _write_by_delta_rs
        if write(lake, snapshot, scope, chunks, mark, from_scratch):
            return stored
        time.sleep(0.05 * (attempt + 1))
    raise TableError(
        f"The table rule_index at {lake.uri('rule_index')} is being written too often by others; try again."
    )


def _write_by_delta_rs(
    lake: Lake,
    snapshot: FolderSnapshot,
    scope: str,
    chunks: Iterable[pa.RecordBatch],
    mark: tuple[str, int],
    from_scratch: bool,
) -> bool:
    """Like `write_chunks`, for a table in an object store, or one that asks more of a commit than its rows."""
    from deltalake import ColumnProperties, CommitProperties, Transaction, WriterProperties, exceptions, write_deltalake

    # no query filters by the bytes: minimum and maximum would only be copies of them
    plain = ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
    writer = WriterProperties(compression="ZSTD", compression_level=1, column_properties={"data": plain})
    mode: dict[str, Any] = {"mode": "append"}
    if from_scratch:
        mode = {"mode": "overwrite", "predicate": f"scope = {literal(scope)}"}
    try:
        # "merge": others may have added columns to the table, which are NULL
        write_deltalake(
            snapshot.table,
            pa.RecordBatchReader.from_batches(arrow_schema(RULE_INDEX), chunks),
            writer_properties=writer,
            commit_properties=CommitProperties(app_transactions=[Transaction(*mark)]),
            schema_mode="merge",
            **mode,
        )
    except (exceptions.DeltaError, OSError) as error:
        if isinstance(error, exceptions.CommitFailedError) and not is_refused(error):
            return False
        raise _not_written(lake, scope, error) from error
    return True


def _unfinished(lake: Lake, scope: str, but: str) -> list[tuple[StoredIndex, Path]]:
    """The index of the scope's unfinished micro-batch, and the indexes that hold parts of it, each with its file.

    Empty if no micro-batch is unfinished, if its index has the fingerprint `but`, or if the index is missing or
    damaged.
    """
    last = last_batch(lake, scope)
    if last is None or last.state != PLANNED or last.fingerprint in (None, but):
        return []
    try:
        stored = newest_index(lake, scope, last.fingerprint)
        if stored is None:
            return []
        needed = [stored, *(_holder(lake, stored, name) for name in stored.shared_files)]
        return [(each, fetch_index(lake, each)) for each in needed]
    except IndexDamagedError:
        return []


def update_statistics(lake: Lake, stored: StoredIndex, found: Mapping[str, Any]) -> None:
    """Add `found` to the statistics of a stored index, in one commit; nothing is written if they have it already.

    Statistics that another process has changed since `stored` was read are left as they are. TableError if the table
    cannot be written.
    """
    from deltalake import exceptions

    if all(name in stored.statistics and stored.statistics[name] == value for name, value in found.items()):
        return
    before, after = _as_text(stored.statistics), _as_text({**stored.statistics, **found})
    same = f"scope = {literal(stored.scope)} AND created_at = '{stored.created_at.isoformat()}'"
    for attempt in range(_ATTEMPTS):
        try:
            lake.writable("rule_index").update(
                updates={"statistics": literal(after)}, predicate=f"{same} AND statistics = {literal(before)}"
            )
            return
        except exceptions.CommitFailedError as error:
            if attempt == _ATTEMPTS - 1 or is_refused(error):
                raise _not_written(lake, stored.scope, error) from error
            time.sleep(0.05 * (attempt + 1))
        except (exceptions.DeltaError, OSError) as error:
            raise _not_written(lake, stored.scope, error) from error


def _not_written(lake: Lake, scope: str, error: Exception) -> TableError:
    return not_written(f"The index of {scope} cannot be written to the table {lake.uri('rule_index')}", error)


def _as_text(statistics: Mapping[str, Any]) -> str:
    return json.dumps(dict(statistics), sort_keys=True)


def _chunks(stored: StoredIndex, path: Path) -> Iterator[pa.RecordBatch]:
    described = {name: getattr(stored, name) for name in StoredIndex.__slots__}
    return chunks_of({**described, "statistics": _as_text(stored.statistics)}, path, stored.chunks)


def shared_files(statistics: Mapping[str, Any]) -> list[str]:
    """The names of the files that an index shares with older ones, by its statistics."""
    base = statistics.get(BASE_FILE)
    return sorted({*statistics.get(LIST_FILES, []), *([base] if base else [])})


def format_version_of(statistics: Mapping[str, Any]) -> int:
    """The version of the file format that the index's statistics name."""
    return int(statistics.get("format_version", 1))


def fetch_index(lake: Lake, stored: StoredIndex) -> Path:
    """A local file of the index, which is kept as long as this process lives.

    It is named by the index's SHA-256, and checked against it on each call. The files of older indexes that hold parts
    of this one are put into the same folder and checked, too. IndexDamagedError as for `read_index`, or if one of
    these older indexes is gone.
    """
    folder = indexes_folder()
    for name in stored.shared_files:
        if not _is_kept(folder / name):
            _fetch(lake, _holder(lake, stored, name), folder / name)
    path = folder / f"{stored.sha256}.index"
    if not _is_kept(path):
        _fetch(lake, stored, path)
    return path


def _holder(lake: Lake, stored: StoredIndex, name: str) -> StoredIndex:
    """The older index with the file `name`, which holds parts of `stored`; IndexDamagedError if it is gone."""
    with _damage(stored.scope):
        found = _by_name(lake, stored.scope, name)
    if found is None:
        raise IndexDamagedError.of(stored.scope, f"rule_index no longer has the part of it in {name}")
    return found


def _by_name(lake: Lake, scope: str, name: str) -> StoredIndex | None:
    """The scope's index whose file has this name; None if there is none."""
    return _newest(lake, [("scope", scope), ("chunk", 0), ("sha256", name.removesuffix(".index"))])


def _is_kept(path: Path) -> bool:
    """Whether the file exists and has the SHA-256 that it is named by; it is then kept while this process lives."""
    return keep(path) and sha256_once(path) == path.stem


def _fetch(lake: Lake, stored: StoredIndex, path: Path) -> None:
    """Write the index's bytes from the table to a file."""
    data = read_index(lake, stored)
    handle, temporary = new_file(path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise not_written(f"The index of {stored.scope} cannot be written to {path.parent}", error) from error
    keep(path)


def read_index(lake: Lake, stored: StoredIndex) -> bytes:
    """The index's bytes from the table; IndexDamagedError if they do not have the SHA-256 that was stored."""
    filters = [("scope", stored.scope), ("fingerprint", stored.fingerprint)]
    with _damage(stored.scope):
        rows = lake.arrow("rule_index", ["chunk", "data", "created_at"], filters).sort_by("chunk").to_pylist()
    data = b"".join(row["data"] for row in rows if row["created_at"] == stored.created_at)
    if hashlib.sha256(data).hexdigest() != stored.sha256:
        raise IndexDamagedError.of(stored.scope, "its bytes do not have the SHA-256 that was written with them")
    return data


@contextlib.contextmanager
def _damage(scope: str) -> Any:
    """Turn an unreadable file of `rule_index` into IndexDamagedError, but not one that is only out of reach."""
    try:
        yield
    except TableError as error:
        if is_out_of_reach(error):
            raise
        raise IndexDamagedError.of(scope, str(error)) from error
