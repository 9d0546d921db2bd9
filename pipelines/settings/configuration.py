"""Reads deltatag.toml into typed, checked values; every error names the file and the key."""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
import zoneinfo
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args

from pipelines.errors import ConfigurationError
from pipelines.settings.maintenance import maintenance_of
from pipelines.settings.model import (
    ENGINES,
    RETAG,
    RUNNERS,
    SEVERITIES,
    Configuration,
    Join,
    JoinMethod,
    LakeSettings,
    ListTable,
    RulesSettings,
    Start,
    Stream,
)
from pipelines.settings.section import Section, flattened, parse_duration, parse_size, substituted
from pipelines.settings.semantic_settings import SEMANTIC_SETTINGS, TIME_ZONE, canonical_name
from pipelines.settings.streams_over_streams import refuse_circles, with_sources
from pipelines.table_definitions import (
    ANNOTATION_COLUMNS,
    FIXED_TABLES,
    MATCHES_COLUMNS,
    QUARANTINE_COLUMNS,
    joined_columns,
    scope_tables,
)
from rules_index.join import MOST_STREAMS

FILE_NAME = "deltatag.toml"
CONFIG_VARIABLE = "DELTATAG_CONFIG"
"""Environment variable with the path of the configuration, for the command line and Dagster."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LONGEST_NAME = 200
"""Maximum characters of a name: it is part of folders' names, which have at most 255."""
_TAKEN_FOR_ANOTHER = re.compile(r"%[0-9A-Fa-f]{2}|[#?\\\x00-\x1f\x7f\ud800-\udfff]")
"""Matches a part of a path with which delta-rs does not find a table, or (`#`, `?`) the table's history."""
_NOT_WRITABLE = re.compile(r"[\[\]^|]")
"""Matches a character of a path at which the writer of delta-rs panics."""
_ZONES_JAVA_KNOWS = r"(?!posix/|right/|(?:localtime|posixrules|Factory|ROC)$).*"
"""Matches all names except those in the time zone database that Java does not know."""


def find_configuration(path: str | Path | None = None) -> Path:
    """The configuration file: `path`, or the deltatag.toml in that folder; by default that of the working directory.

    ConfigurationError if there is no such file.
    """
    found = Path(path) if path is not None else Path(FILE_NAME)
    try:
        if found.is_dir():
            found /= FILE_NAME
        exists = found.is_file()
    except ValueError:  # the path contains the character NUL
        exists = False
    if not exists:
        advice = "Give another file or folder with --config or DELTATAG_CONFIG, or make one with: deltatag init"
        raise ConfigurationError(f"{found}: there is no such configuration file. {advice}".replace("\0", "\\0"))
    return found


def load_configuration(path: str | Path | None = None) -> Configuration:
    """Read and check the configuration file; ConfigurationError names the file, the key and the mistake."""
    found = find_configuration(path)
    try:
        return parse_configuration(_document(found), found)
    except RecursionError:
        raise ConfigurationError(f"{found}: brackets are nested too deeply here.") from None


def _document(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: the configuration is not text in UTF-8; save it as UTF-8.") from None
    except ValueError as error:  # invalid TOML, or a number with thousands of digits
        raise ConfigurationError(f"{path}: this is not valid TOML: {error}.") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: the configuration cannot be read: {error.strerror}.") from None


def parse_configuration(document: Mapping[str, Any], path: Path) -> Configuration:
    """The configuration of a parsed TOML document; relative paths in it are resolved against the folder of `path`."""
    top = Section(path, "", substituted(document, path))
    top.expect("lake", "spark", "rules", "streams", "joins", "lists")
    lake = _lake(top.section("lake"))
    spark = {name: _spark_value(name, value, path) for name, value in flattened(top.table("spark"))}
    rules = _rules(top.section("rules"))
    sections = top.section("streams")
    streams = {name: _stream(name, sections.section(name)) for name in top.table("streams")}
    streams = with_sources(sections, lake, streams)
    joins = {name: _join(name, top.section("joins").section(name), streams) for name in top.table("joins")}
    lists = {name: _list(name, top.section("lists").section(name)) for name in top.table("lists")}
    _refuse_collisions(path, streams, joins, lists)
    makers = {table: name for name in (*streams, *joins) for table in scope_tables(name, is_join=name in joins)}
    refuse_circles(sections, {lake.place(table): name for table, name in makers.items()}, streams, joins)
    return Configuration(
        path,
        lake,
        MappingProxyType(spark),
        rules,
        MappingProxyType(streams),
        MappingProxyType(joins),
        MappingProxyType(lists),
    )


def _spark_value(name: str, value: Any, path: Path) -> str:
    if not name.startswith("spark."):
        raise ConfigurationError(f"{path}: [spark] {name}: Spark's settings have names that begin with spark.")
    semantic = canonical_name(name)
    if semantic == TIME_ZONE:
        raise ConfigurationError(f"{path}: [spark] {name}: the time zone is set by time_zone in [rules].")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if semantic is not None and (name != semantic or text.lower() != SEMANTIC_SETTINGS.get(name, "").lower()):
        always = f'"{SEMANTIC_SETTINGS[semantic]}"' if semantic in SEMANTIC_SETTINGS else "as Spark has it by default"
        raise ConfigurationError(
            f"{path}: [spark] {name}: what a rule means depends on it, so it is always {always}. Leave it out."
        )
    if isinstance(value, (list, tuple)):
        raise ConfigurationError(f"{path}: [spark] {name}: expected one value; several go into one text, with commas.")
    return text


def _resolve(section: Section, key: str, location: str, written: bool = False) -> str:
    """A path made absolute; a URI is returned unchanged.

    written: whether deltatag writes tables there. ConfigurationError for a path that delta-rs cannot use.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", location):
        return location
    place = os.path.realpath(section.path.absolute().parent / os.path.expanduser(location))
    if found := _TAKEN_FOR_ANOTHER.search(place):
        raise section.error(key, f"delta-rs takes {found[0]!a} in {place} for something else; rename that folder")
    if written and (found := _NOT_WRITABLE.search(place)):
        raise section.error(key, f"delta-rs cannot write where a path has {found[0]!r}: {place}; rename that folder")
    return place


def _lake(section: Section) -> LakeSettings:
    section.expect("root", "catalog", "runner", "maintenance", "pages_url")
    root, catalog = section.text("root"), section.text("catalog")
    if (root is None) == (catalog is None):
        raise section.error("root", "give either root or catalog, as the place of deltatag's own tables")
    place = None if root is None else _resolve(section, "root", root, written=True)
    url = section.text("pages_url")
    if url is not None and re.match(r"https?://[^/\s]\S*\Z", url) is None:
        raise section.error("pages_url", "expected an address such as http://localhost:3001")
    return LakeSettings(place, catalog, section.choice("runner", RUNNERS), maintenance_of(section), url)


def _rules(section: Section) -> RulesSettings:
    section.expect("time_zone", "on_reject", "max_reject_share", "time_limit", "engine", "severities")
    time_zone = section.text("time_zone", "UTC")
    assert time_zone is not None
    try:
        zoneinfo.ZoneInfo(time_zone)
        known = re.fullmatch(_ZONES_JAVA_KNOWS, time_zone) is not None
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = False
    if not known:
        raise section.error("time_zone", f"there is no time zone {time_zone!r}; name one like Europe/Berlin or UTC")
    try:
        time_limit = parse_duration(section.values.get("time_limit", "10 min"))
    except ValueError as error:
        raise section.error("time_limit", str(error)) from None
    if not time_limit:
        raise section.error("time_limit", "expected a duration above zero")
    return RulesSettings(
        time_zone,
        section.choice("on_reject", ("drop", "hold")),
        section.share("max_reject_share"),
        time_limit,
        section.choice("engine", ENGINES),
        section.texts("severities") or SEVERITIES,
    )


_STREAM_KEYS = (
    "source", "source_stream", "start", "key", "event_time", "max_bytes_per_batch", "output", "matches", "cluster_by",
    "partition_by", "checks", "max_quarantine_share", "engine", "retag", "annotations", "owners",
    "freshness",
)  # fmt: skip


def _stream(name: str, section: Section) -> Stream:
    section.expect(*_STREAM_KEYS)
    source, source_stream = section.text("source"), section.text("source_stream")
    if source is None and source_stream is None:
        raise section.error("source", "the path, URI or catalog name of the source table is missing")
    if source is not None and source_stream is not None:
        raise section.error("source_stream", "give either source or source_stream, not both")
    try:
        size = parse_size(section.values.get("max_bytes_per_batch", "1g"))
    except ValueError as error:
        raise section.error("max_bytes_per_batch", str(error)) from None
    checks = section.table("checks")
    for check, condition in checks.items():
        if not isinstance(condition, str) or not condition.strip():
            raise section.error(f"checks.{check}", 'expected a condition such as "amount > 0"')
    stream = Stream(
        name=name,
        source=_source(section, source) if source is not None else "",
        source_stream=source_stream,
        start=_start(section),
        key=section.texts("key"),
        event_time=section.text("event_time"),
        max_bytes_per_batch=size,
        output=section.choice("output", ("all", "matched")),
        matches=section.flag("matches", True),
        cluster_by=section.texts("cluster_by"),
        partition_by=section.texts("partition_by") if "partition_by" in section.values else None,
        checks=MappingProxyType(dict(checks)),
        max_quarantine_share=section.share("max_quarantine_share"),
        engine=_engine(section),
        retag=section.choice("retag", RETAG),
        annotations=_annotations(section),
        owners=section.owners(),
        freshness=_freshness(section),
    )
    if stream.cluster_by and stream.partition_by:
        raise section.error("partition_by", "a table is either clustered or partitioned; leave out one of the two")
    if stream.annotations and stream.retag == "new_rules":
        message = "what rows get of their rules (annotations) follows all rules or none of them"
        raise section.error("retag", f'{message}: write "always" or "never"')
    for key in stream.key:
        if key.lower() in MATCHES_COLUMNS:
            raise section.error("key", f"the column {key} is named like one that deltatag adds")
    return stream


def _freshness(section: Section) -> int | None:
    found = _duration(section, "freshness")
    if found == 0:
        raise section.error("freshness", "expected a duration above zero")
    return found


def _annotations(section: Section) -> tuple[str, ...]:
    """The configured annotation columns, in the order that tagged tables have."""
    named = section.texts("annotations")
    for name in named:
        if name not in ANNOTATION_COLUMNS:
            raise section.error("annotations", f"expected some of {', '.join(ANNOTATION_COLUMNS)}, found {name!r}")
    return tuple(name for name in ANNOTATION_COLUMNS if name in named)


def _engine(section: Section) -> str | None:
    return section.choice("engine", ENGINES) if "engine" in section.values else None


def _source(section: Section, source: str) -> str:
    """A path made absolute; a URI or a catalog name (`catalog.schema.table`, `schema.table`) is returned unchanged.

    A source that exists as a path is a path; otherwise, two or three plain names with dots are a catalog name.
    """
    located = _resolve(section, "source", source)
    parts = source.split(".")
    if len(parts) in (2, 3) and all(_NAME.match(part) for part in parts) and not os.path.exists(located):
        return source
    return located


def is_catalog_name(source: str) -> bool:
    """True if a source is a name in Spark's catalog, and not a path or URI."""
    return "/" not in source and "\\" not in source


def _start(section: Section) -> Start:
    value = section.values.get("start", "earliest")
    if value == "earliest":
        return Start()
    if isinstance(value, str) and re.fullmatch("[0-9]{1,19}", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return Start("version", value)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        instant = value if value.tzinfo else value.replace(tzinfo=UTC)
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return Start("timestamp", int((instant - epoch).total_seconds() * 1_000_000))
    raise section.error(
        "start",
        'expected "earliest", a version such as 12, or a timestamp (UTC unless it says so)',
    )


def _join(name: str, section: Section, streams: Mapping[str, Stream]) -> Join:
    section.expect("streams", "on", "window", "lateness", "engine", "method", "annotations", "owners")
    members = section.texts("streams")
    if not 2 <= len(members) <= MOST_STREAMS:
        raise section.error("streams", f"a join has two to {MOST_STREAMS} streams")
    for member in members:
        if member not in streams:
            raise section.error("streams", f"there is no stream {member!r}; the streams are: {', '.join(streams)}")
        if (origin := streams[member].source_stream) is not None:
            message = f"{member} has only what {origin} has tagged, and a join reads whole sources"
            raise section.error("streams", f"{message}: join {origin}, or give {member} a source")
        if streams[member].event_time is None:
            raise section.error(
                "streams",
                f"the stream {member!r} has no event_time, which a window needs",
            )
    on = _join_keys(section, members)
    window = _join_window(section, members)
    method = cast("JoinMethod", section.choice("method", get_args(JoinMethod)))
    frozen = MappingProxyType(on), MappingProxyType(window)
    lateness, annotations = _duration(section, "lateness"), _annotations(section)
    added = [*joined_columns("string", annotations), *(QUARANTINE_COLUMNS if lateness is not None else ())]
    if named := {member.lower() for member in members} & {column.name for column in added}:
        message = f"deltatag adds a column {min(named)} to the join's tables; give the stream {min(named)} another name"
        raise section.error("streams", message)
    return Join(name, members, *frozen, lateness, _engine(section), method, annotations, section.owners())


def _list(name: str, section: Section) -> ListTable:
    section.expect("source", "column")
    source = section.text("source")
    if source is None:
        raise section.error("source", "the path or URI of the list's Delta table is missing")
    return ListTable(name, _resolve(section, "source", source, written=True), section.text("column"))


def _duration(section: Section, key: str) -> int | None:
    """The duration in microseconds; None if the key is missing."""
    return section.duration(key) if key in section.values else None


def _join_keys(section: Section, members: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    value = section.values.get("on")
    if isinstance(value, Mapping):
        keys = section.section("on")
        keys.expect(*members)
        on = {member: keys.texts(member) for member in members}
    else:
        on = dict.fromkeys(members, section.texts("on"))
    if not all(on.values()) or len({len(columns) for columns in on.values()}) != 1:
        raise section.error("on", "every stream needs the same number of key columns, at least one")
    return on


def _join_window(section: Section, members: tuple[str, ...]) -> dict[str, int]:
    value = section.values.get("window")
    if isinstance(value, Mapping):
        section.section("window").expect(*members)
    texts = value if isinstance(value, Mapping) else dict.fromkeys(members, value)
    window = {}
    for member in members:
        try:
            window[member] = parse_duration(texts.get(member))  # type: ignore[arg-type]
        except ValueError as error:
            raise section.error("window", f"{member}: {error}") from None
    return window


def _refuse_collisions(
    path: Path, streams: Mapping[str, Stream], joins: Mapping[str, Join], lists: Mapping[str, ListTable]
) -> None:
    """Raise ConfigurationError if two names of scopes, lists or their tables are the same (case aside)."""
    taken = dict.fromkeys(FIXED_TABLES, "a table of deltatag's")
    scopes = [
        (kind, name) for kind, named in (("streams", streams), ("joins", joins), ("lists", lists)) for name in named
    ]
    for kind, name in scopes:
        if not _NAME.match(name):
            message = "a name consists of letters, digits and underscores and starts with no digit"
            raise ConfigurationError(f"{path}: [{kind}.{name}]: {message}.")
        if len(name) > _LONGEST_NAME:
            message = f"a name has at most {_LONGEST_NAME} characters, and this one has {len(name)}"
            raise ConfigurationError(f"{path}: [{kind}.{name}]: {message}.")
    for kind, name in scopes:
        own = scope_tables(name, is_join=kind == "joins") if kind != "lists" else ()
        for table in (name, *own):
            if table.lower() in taken:
                message = f"the name {table} is already taken by {taken[table.lower()]}; choose another"
                raise ConfigurationError(f"{path}: [{kind}.{name}]: {message}.")
        taken |= {table.lower(): f"[{kind}.{name}]" for table in (name, *own)}
