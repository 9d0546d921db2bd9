"""Checks and completes streams in the configuration that read another stream's tagged table."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pipelines.table_definitions import TAGGED_COLUMNS, quarantine_table, tagged_table

if TYPE_CHECKING:
    from pipelines.settings.model import Join, LakeSettings, Stream
    from pipelines.settings.section import Section


def with_sources(section: Section, lake: LakeSettings, streams: Mapping[str, Stream]) -> dict[str, Stream]:
    """The streams in topological order, each after its origin, with the origin's tagged table as source.

    section: `[streams]`. ConfigurationError says why a stream cannot read its origin's tagged rows.
    """
    found: dict[str, Stream] = {}
    for name in streams:
        for each in reversed(_chain(section, streams, name)):
            if each.name in found or each.source_stream is None:
                found.setdefault(each.name, each)
                continue
            _refuse(section.section(each.name), each, found[each.source_stream])
            origin = found[each.source_stream]
            found[each.name] = replace(
                each, source=lake.place(tagged_table(origin)), left_out=(*TAGGED_COLUMNS, *origin.annotations)
            )
    return found


def _chain(section: Section, streams: Mapping[str, Stream], name: str) -> list[Stream]:
    """A stream, its origin, the origin's origin, and so on up to a stream with a source of its own."""
    chain = [streams[name]]
    while (origin := chain[-1].source_stream) is not None:
        own = section.section(chain[-1].name)
        if origin not in streams:
            raise own.error("source_stream", f"there is no stream {origin!r}; the streams are: {', '.join(streams)}")
        if any(each.name == origin for each in chain):
            raise own.error("source_stream", "streams read each other in a circle; give one of them a source")
        chain.append(streams[origin])
    return chain


def _refuse(section: Section, stream: Stream, origin: Stream) -> None:
    """Raise ConfigurationError if the origin's tagged table may lack rows that the stream should have."""
    if origin.output == "matched" and stream.output != "matched":
        raise section.error(
            "output",
            f"{origin.name} writes only rows that satisfy one of its rules, so {stream.name} would lack the others: "
            f'write output = "matched" here, or give {stream.name} a source in place of source_stream',
        )
    keys, checks = not_asked(stream, origin.key, origin.checks)
    if keys:
        raise section.error(
            "key",
            f"rows with NULL in the key {', '.join(keys)} of {origin.name} are in {quarantine_table(origin)}, and "
            f"would be missing here without a word: write key = [{_quoted([*stream.key, *keys])}]",
        )
    if checks:
        name, condition = next(iter(checks.items()))
        raise section.error(
            "checks",
            f"rows that fail the check {name} of {origin.name} are in {quarantine_table(origin)}, and would be missing "
            f"here without a word: add {name} = {_quoted([condition])} to the checks",
        )


def refuse_circles(
    section: Section, tables: Mapping[str, str], streams: Mapping[str, Stream], joins: Mapping[str, Join]
) -> None:
    """Raise ConfigurationError for a stream whose source is a table that deltatag derives from the stream itself.

    section: `[streams]`; tables: the place of each table that deltatag writes -> its stream or join.
    """
    makers = {canonical_place(place): scope for place, scope in tables.items()}
    origins = {name: makers.get(canonical_place(stream.source)) for name, stream in streams.items()}
    for name in streams:
        waiting, seen = [name], set[str]()
        while waiting:
            scope = waiting.pop()
            origin = origins.get(scope)
            before = joins[scope].streams if scope in joins else () if origin is None else (origin,)
            if name in before:
                raise section.section(name).error(
                    "source",
                    f"{streams[name].source} is a table that deltatag makes from the rows of {name} itself, which "
                    "would be tagged again and again; name the table whose rows are to be tagged",
                )
            waiting += [each for each in before if each not in seen]
            seen.update(before)


def canonical_place(place: str) -> str:
    """A canonical spelling of a path, a URI or a catalog name; symbolic links are resolved."""
    if "/" not in place and "\\" not in place:
        return place.lower().replace("`", "").removeprefix("spark_catalog.")
    scheme, _, rest = place.partition(":/")
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", scheme) and scheme.lower() != "file":
        return f"{re.sub('^s3[an]$', 's3', scheme.lower())}:/{posixpath.normpath(rest)}"
    path = unquote("/" + rest.lstrip("/")) if scheme.lower() == "file" else place
    return os.path.realpath(path)


def no_source(stream: str, place: str, origin: str | None) -> str:
    """The message for a stream whose source does not exist; `origin`: the stream that tags its rows, if any."""
    if origin is not None:
        return f"{stream} reads what {origin} has tagged, which is nothing yet. Run first: deltatag tag {origin}"
    return (
        f"The stream {stream} has no source: there is no Delta table at {place}. Write it first, or correct "
        f"[streams.{stream}] source in deltatag.toml."
    )


def not_asked(stream: Stream, key: Iterable[str], checks: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The columns of another stream's key, and the checks of that stream, that `stream` itself does not have."""
    columns = {column.lower() for column in stream.key}
    conditions = {condition.strip() for condition in stream.checks.values()}
    return (
        tuple(column for column in key if column.lower() not in columns),
        {name: condition for name, condition in checks.items() if condition.strip() not in conditions},
    )


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)
