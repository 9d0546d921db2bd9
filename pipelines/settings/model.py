"""What deltatag.toml says, as typed values; `pipelines.settings.configuration` reads and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipelines.errors import ConfigurationError

TAGGED_COLUMNS = (
    "rule_ids",
    "rules_version",
    "index_fingerprint",
    "source_version",
    "tagged_at",
)
"""Columns that deltatag adds to a tagged row, in their order."""
ANNOTATION_COLUMNS = ("first_rule_id", "labels", "severity")
"""Columns that a tagged row gets where its stream or join asks for them, in their order."""
MATCHES_COLUMNS = ("rule_id", "rules_version", "source_version")
"""Columns of `<stream>_matches` beside the stream's key and event time."""
QUARANTINE_COLUMNS = ("reason", "batch")
"""Columns that deltatag adds to a row in quarantine."""
FIXED_TABLES = ("rules", "rule_rejects", "rule_index", "runs", "lint_accepted")
"""Tables that every lake has."""


AUTO, LOCAL, SPARK = "auto", "local", "spark"
RUNNERS = (AUTO, LOCAL, SPARK)
"""What `[lake] runner` may be."""

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Maintenance:
    """How deltatag's own tables are kept small; times in microseconds.

    automatic   whether a run does what is due of the tables that it wrote
    versions    how long the older versions of a table can be read, at least
    runs        how long each micro-batch is a row of `runs` of its own, at least
    quarantine  how long rows stay in quarantine, None: for ever
    """

    automatic: bool = True
    versions: int = 7 * _DAY
    runs: int = 90 * _DAY
    quarantine: int | None = None


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Where deltatag's own tables live: below the folder or URI `root`, or in `catalog` (`catalog.schema`).

    `runner`: who takes rows through the index, this process ("local") or Spark; "auto": the former where it can.
    """

    root: str | None
    catalog: str | None
    runner: str = AUTO
    maintenance: Maintenance = Maintenance()

    def place(self, table: str) -> str:
        """Path, URI or catalog name of a table."""
        return f"{self.catalog}.{table}" if self.root is None else f"{self.root.rstrip('/')}/{table}"


ENGINES = ("auto", "hybrid", "asc", "be_tree", "r_tree", "grid_file", "cei", "scan")
"""What `engine` may be: those of `rules_index.index.registry`, named here since importing it takes a second."""

JoinMethod = Literal["batch", "pdfa"]
"""How the workers of a join find its joined rows: as `rules_index.join.index.Method`."""


RETAG = ("never", "new_rules", "always")
"""Which edits of the rules a run applies to rows that are tagged already: none, added rules, all."""


SEVERITIES = ("informational", "low", "medium", "high", "critical")
"""Severities of rules where the configuration names no others, the lowest first: Sigma's."""


@dataclass(frozen=True, slots=True)
class RulesSettings:
    """How rules are read. `on_reject` is "drop" or "hold"; `max_reject_share` lies in [0, 1].

    `time_limit`: microseconds that a micro-batch may take in Spark, where Spark evaluates predicates, beside what its
    rows and bytes allow for. `engine`: of scopes that name none. `severities`: what there are, the lowest first.
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

    `value` is the Delta version, or the microseconds of the timestamp since 1970 in UTC, else 0.
    """

    kind: str = "earliest"
    value: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """One source table whose rows are tagged; `name` is the scope of its rules.

    `partition_by` is None where a new tagged table is partitioned as its source is. Where `source_stream` names
    another stream, the source is that one's tagged table, without what tagging added. `retag`, one of RETAG, says what
    a run does to rows that are tagged already when rules are edited. `annotations`: which of ANNOTATION_COLUMNS tagged
    rows get; `owners`: who answers for its tables; `freshness`: microseconds that a row of the source may wait to be
    tagged before it is told, None: never. `left_out`: columns that the stream which `source_stream` names has added to
    its source's.
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
        """True where `<stream>_matches` is kept: the stream has a key and `matches` is not switched off."""
        return self.matches and bool(self.key)

    @property
    def can_quarantine(self) -> bool:
        """True where a row of the stream may go to quarantine: it has a key or a check."""
        return bool(self.key) or bool(self.checks)


@dataclass(frozen=True, slots=True)
class Join:
    """A window join: `on` gives each stream's key columns, `window` its reach in microseconds.

    A row that arrives when one later than it by more than `lateness` microseconds has been joined goes to quarantine.
    `owners`: who answers for its tables.
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


@dataclass(frozen=True, slots=True)
class ListTable:
    """A list of values that rules may name: a column of a Delta table, by default its only one."""

    name: str
    source: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """All of one deltatag.toml. `path` is the file that it was read from."""

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
        """The stream of this name; ConfigurationError, with the names there are, if there is none."""
        try:
            return self.streams[name]
        except KeyError:
            known = ", ".join(sorted(self.streams)) or "none"
            raise ConfigurationError(
                f"{self.path}: there is no stream {name!r}; the configured streams are: {known}."
            ) from None

    def join(self, name: str) -> Join:
        """The join of this name; ConfigurationError, with the names there are, if there is none."""
        try:
            return self.joins[name]
        except KeyError:
            known = ", ".join(sorted(self.joins)) or "none"
            raise ConfigurationError(
                f"{self.path}: there is no join {name!r}; the configured joins are: {known}."
            ) from None
