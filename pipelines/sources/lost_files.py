"""Detects source files that were deleted (by VACUUM) before their rows were taken, and says what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pipelines.errors import PipelineError, SourceError, SparkEndedError
from pipelines.sources.positions import Add, Slice
from pipelines.sources.slices import rows_of

if TYPE_CHECKING:
    from pipelines.settings.model import Stream
    from pipelines.sources.source import Source


@contextmanager
def reporting_lost_files(source: Source, files: tuple[Add, ...], advice: str) -> Iterator[None]:
    """If some of the files no longer exist, turn an error of the block into a SourceError that says what was lost.

    advice: the sentence on what to do.
    """
    try:
        yield
    except SparkEndedError:
        raise
    except Exception as error:
        lost = lost_files(source, files)
        if not lost:
            raise
        raise lost_error(source, lost, len(files), advice) from error


def reporting_lost_rows(source: Source, files: tuple[Add, ...]) -> AbstractContextManager[None]:
    """`reporting_lost_files`, with commands that skip the lost rows or take the whole source again."""
    advice = f"Continue without these rows with: {source.command} --skip-changes, or process the source from the "
    return reporting_lost_files(source, files, f"{advice}beginning with: {source.command} --restart")


def join_again(command: str, stream: Stream) -> str:
    """What to do where files that a join has yet to read are gone: it cannot skip their rows."""
    return f"Join the sources from the beginning with: {command} --restart{without_start(stream)}"


def without_start(stream: Stream) -> str:
    """Where files of a stream are gone: what a restart needs besides, lest it take the same files; "" if nothing."""
    if stream.start.kind == "earliest":
        return ""
    return (
        f", after you have removed the start of {stream.name} or set it after the versions that had added these files"
    )


def lost_files(source: Source, files: tuple[Add, ...]) -> tuple[Add, ...]:
    """The files that no longer exist; empty if this kind of log cannot tell."""
    missing = getattr(source.log, "missing", None)
    if missing is None:
        return ()
    gone = set(missing([add["path"] for _, add in files]))
    return tuple((version, add) for version, add in files if add["path"] in gone)


def refuse_lost_files(source: Source, files: tuple[Add, ...], stream: Stream, otherwise: str = "") -> None:
    """Raise SourceError if files that a restart would read no longer exist, before it empties any table.

    otherwise: what people may do instead of putting the files back, after ", or ".
    """
    if lost := lost_files(source, files):
        # files that a start asks for need not be in the source's newest version
        cure = "remove them from the source's log (deltalake: DeltaTable.repair)"
        if stream.start.kind != "earliest":
            cure = f"restart with: {source.command} --restart{without_start(stream)}"
        advice = f"Put these files back from a copy, or {cure}{otherwise}. No table was emptied."
        raise lost_error(source, lost, len(files), advice)


def without_lost_files(source: Source, taken: Slice) -> Slice:
    """The slice without files that no longer exist; `lost` has the places of those."""
    gone = {add["path"] for _, add in lost_files(source, taken.files)}
    if not gone:
        return taken
    lost = tuple(place for place, (_, add) in enumerate(taken.files) if add["path"] in gone)
    return replace(taken, files=tuple(each for each in taken.files if each[1]["path"] not in gone), lost=lost)


def lost_error(source: Source, lost: tuple[Add, ...], count: int, advice: str) -> PipelineError:
    """An error that names the lost files, the versions that added them, and their rows."""
    versions = [version for version, _ in lost]
    added = f"version {versions[0]}" if len(set(versions)) == 1 else f"versions {min(versions)} to {max(versions)}"
    rows = rows_of(lost)
    note = f", with {rows:,} rows," if rows is not None else ""
    return SourceError(
        f"{len(lost):,} of the {count:,} files that {source.name} has to read next from its source at {source.log.uri} "
        f"no longer exist (the first is {lost[0][1]['path']}): VACUUM or something else removed them before their rows "
        f"were processed. {added[0].upper()}{added[1:]} of the source had added them{note} which the source may still "
        f"hold in other files, where OPTIMIZE rewrote them. {advice}"
    )
