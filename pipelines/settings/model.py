"""The configuration as typed values; `pipelines.settings.configuration` reads and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipelines.errors import ConfigurationError

AUTO, LOCAL, SPARK = "auto", "local", "spark"
RUNNERS = (AUTO, LOCAL, SPARK)
"""The values of `[lake] runner`."""

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Maintenance:
    """How deltatag's own tables are maintained; times in microseconds.

    automatic   whether a run maintains the tables that it wrote
    versions    the minimum time for which older versions of a table stay readable
    runs        the minimum time for which each micro-batch has its own row in `runs`
    quarantine  how long rows stay in quarantine; None: for ever
    """

    automatic: bool = True
    versions: int = 7 * _DAY
    runs: int = 90 * _DAY
    quarantine: int | None = None


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Where deltatag's own tables live: below the folder or URI `root`, or in `catalog` (`catalog.schema`).

    runner: what matches rows: this process ("local"), Spark ("spark"), or "auto": this process wherever it is exact.
    pages_url: the address at which a web server has the pages of reports and Data Docs.
    """

    root: str | None
    catalog: str | None
    runner: str = AUTO
    maintenance: Maintenance = Maintenance()
    pages_url: str | None = None

    def place(self, table: str) -> str:
        """Path, URI or catalog name of a table."""
        return f"{self.catalog}.{table}" if self.root is None else f"{self.root.rstrip('/')}/{table}"


ENGINES = ("auto", "hybrid", "asc", "be_tree", "r_tree", "grid_file", "cei", "scan")
"""The values of `engine`: those of `rules_index.index.registry`, repeated here since its import takes a second."""

JoinMethod = Literal["batch", "pdfa"]
"""How workers find joined rows; the same as `rules_index.join.index.Method`."""


RETAG = ("never", "new_rules", "always")
"""Which edits of the rules a run applies to rows that are already tagged: none, only added rules, or all."""


SEVERITIES = ("informational", "low", "medium", "high", "critical")
"""Default severities of rules, lowest first: those of Sigma."""


@dataclass(frozen=True, slots=True)
class RulesSettings:
    """How rules are read. `on_reject` is "drop" or "hold"; `max_reject_share` lies in [0, 1].

    time_limit: microseconds that Spark may take to evaluate predicates of a micro-batch, plus an allowance for its rows
    and bytes; engine: for scopes that name none; severities: lowest first.
    """

    time_zone: str = "UTC"
    on_reject: str = "drop"
    max_reject_share: float = 1.0
    time_limit: int = 600_000_000
    engine: str = "auto"
    severities: tuple[str, ...] = SEVERITIES


@dataclass(frozen=True, slots=True)
class Start:
    """Where the first run of a stream begins: `kind` is "earliest", "version" or "timestamp".

    `value` is the Delta version, the timestamp in microseconds since 1970 (UTC), or 0.
    """

    kind: str = "earliest"
    value: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """One source table whose rows are tagged; `name` is the scope of its rules.

    source_stream: another stream, the origin; `source` is its tagged table, without the columns `left_out` that tagging
    added; output: "all", or "matched" for only the rows that satisfy a rule; checks: name -> condition, a row on which
    one is not TRUE goes to quarantine; partition_by: None to partition a new tagged table like its source; retag: one
    of RETAG; annotations: which of ANNOTATION_COLUMNS tagged rows get; owners: who answers for its tables; freshness:
    microseconds that a row of the source may wait before it is reported, None: never reported.
    """

    name: str
    source: str
    source_stream: str | None = None
    start: Start = Start()
    key: tuple[str, ...] = ()
    event_time: str | None = None
    max_bytes_per_batch: int = 1 << 30
    output: str = "all"
    matches: bool = True
    cluster_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] | None = None
    checks: Mapping[str, str] = field(default_factory=dict)
    max_quarantine_share: float = 1.0
    engine: str | None = None
    retag: str = "never"
    annotations: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    freshness: int | None = None
    left_out: tuple[str, ...] = field(default=(), metadata={"key": False})

    @property
    def keeps_matches(self) -> bool:
        """True if `<stream>_matches` is kept: the stream has a key, and `matches` is not turned off."""
        return self.matches and bool(self.key)

    @property
    def can_quarantine(self) -> bool:
        """True if rows of the stream can go to quarantine: it has a key or a check."""
        return bool(self.key) or bool(self.checks)


@dataclass(frozen=True, slots=True)
class Join:
    """A window join: `on` gives each stream's key columns, `window` how long its rows join, in microseconds.

    lateness: a row goes to quarantine if its event time is more than this many microseconds before the latest one that
    was joined; None: no row is too late. owners: who answers for its tables.
    """

    name: str
    streams: tuple[str, ...]
    on: Mapping[str, tuple[str, ...]]
    window: Mapping[str, int]
    lateness: int | None = None
    engine: str | None = None
    method: JoinMethod = "batch"
    annotations: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    @property
    def can_quarantine(self) -> bool:
        """True if rows can go to the join's quarantine: it has a lateness."""
        return self.lateness is not None


@dataclass(frozen=True, slots=True)
class ListTable:
    """A value list that rules may name: a column of a Delta table, by default its only column."""

    name: str
    source: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The contents of one deltatag.toml; `path` is that file."""

    path: Path
    lake: LakeSettings
    spark: Mapping[str, str]
    rules: RulesSettings
    streams: Mapping[str, Stream]
    joins: Mapping[str, Join]
    lists: Mapping[str, ListTable] = field(default_factory=dict)

    def engine_of(self, scope: str) -> str:
        """The engine that the rules of a stream or join are compiled for, or "auto"."""
        found = self.streams.get(scope) or self.joins.get(scope)
        return (found.engine if found is not None else None) or self.rules.engine

    def annotations_of(self, scope: str) -> tuple[str, ...]:
        """Which of ANNOTATION_COLUMNS the tagged rows of a stream or join get."""
        found = self.streams.get(scope) or self.joins.get(scope)
        return found.annotations if found is not None else ()

    @property
    def annotates(self) -> bool:
        """True if the tagged rows of any stream or join get some of ANNOTATION_COLUMNS."""
        return any(self.annotations_of(name) for name in (*self.streams, *self.joins))

    def stream(self, name: str) -> Stream:
        """The stream of this name; ConfigurationError, which lists the known names, if there is none."""
        try:
            return self.streams[name]
        except KeyError:
            known = ", ".join(sorted(self.streams)) or "none"
            raise ConfigurationError(
                f"{self.path}: there is no stream {name!r}; the configured streams are: {known}."
            ) from None

    def join(self, name: str) -> Join:
        """The join of this name; ConfigurationError, which lists the known names, if there is none."""
        try:
            return self.joins[name]
        except KeyError:
            known = ", ".join(sorted(self.joins)) or "none"
            raise ConfigurationError(
                f"{self.path}: there is no join {name!r}; the configured joins are: {known}."
            ) from None
