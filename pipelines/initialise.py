"""The verb init: a configuration to start from and the lake's empty tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipelines.errors import ConfigurationError
from pipelines.settings.configuration import load_configuration
from pipelines.settings.model import Configuration
from pipelines.table_definitions import LAKE_TABLES
from pipelines.workspace import Workspace

TEMPLATE = """\
# What deltatag tags, and where its own tables are. Paths are relative to this file; ${NAME} comes from the environment.

[lake]
root = "lake"                       # folder or object-store URI of deltatag's own tables; or: catalog = "main.deltatag"
# runner = "auto"                   # who matches rows: "local" (no JVM), "spark", or whichever is exact
# pages_url = "http://localhost:3001" # where deltatag serve is, for links from Dagster to reports and Data Docs
# [lake.maintenance]                # how deltatag's own tables are kept
# mode = "auto"                     # or "never": runs leave it to deltatag maintain
# versions = "7 days"               # how long older versions of a table stay readable
# runs = "90 days"                  # how long each micro-batch has its own row in runs
# quarantine = "365 days"           # how long rows stay in quarantine; by default for ever

# [spark]                           # any Spark setting; nothing here means local[*]
# "spark.sql.shuffle.partitions" = "8"

# [rules]
# time_zone = "UTC"                 # of timestamp literals and functions
# on_reject = "drop"                # a rule that does not compile is off and reported; "hold" keeps the last good index
# max_reject_share = 1.0            # above it the scope's compile fails
# engine = "auto"                   # the index that rules are compiled into; a stream or join may name its own
# severities = ["informational", "low", "medium", "high", "critical"]   # that rules may have, the lowest first
# time_limit = "10 min"             # how long Spark may take to evaluate predicates of a micro-batch

# [streams.flights]
# source = "lake/flights"           # path, URI or catalog name of a Delta table; or: source_stream = "another_stream"
# start = "earliest"                # or a version, or a timestamp: where the first run begins
# key = ["flight_id"]               # names a row for people, for flights_matches and for quarantine
# event_time = "departed_at"        # TIMESTAMP, TIMESTAMP_NTZ (in time_zone) or DATE
# max_bytes_per_batch = "1g"
# output = "all"                    # or "matched": write only rows with at least one rule
# matches = true                    # keep flights_matches
# cluster_by = ["origin"]           # of the tagged table
# partition_by = []                 # of the tagged table, where cluster_by is not given; as the source by default
# checks = { sane_delay = "dep_delay IS NULL OR dep_delay > -120" }   # where one is not TRUE the row goes to quarantine
# max_quarantine_share = 1.0
# engine = "auto"                   # the index of this stream's rules
# retag = "never"                   # or "new_rules" (without annotations), "always": what a run does with tagged rows
# annotations = []                  # columns besides rule ids: some of "first_rule_id", "labels", "severity"
# owners = []                       # who answers for the tables, for Dagster's page: e-mail addresses, "team:fraud"
# freshness = "1 hour"              # how long a row may wait to be tagged until Dagster warns; by default for ever

# [lists.carriers]                  # rules may name it: carrier IN LIST('carriers')
# source = "lists/carriers"         # path or URI of a Delta table
# column = "carrier"                # of the values; not needed where it is the only one

# [joins.flights_weather]
# streams = ["flights", "weather"]  # two to six
# on = ["origin"]                   # equal in all; or { flights = ["origin"], weather = ["station"] }
# window = "1 hour"                 # or per stream: { flights = "0 s", weather = "3 hours" }
# lateness = "2 days"               # rows that come later go to quarantine_flights_weather
# method = "batch"                  # or "pdfa": row by row, to the same table
# engine = "auto"                   # the index of this join's rules
# annotations = []                  # as for a stream
# owners = []                       # as for a stream
"""


def initialise(path: Path, id_type: str | None, workspace: Callable[[Configuration], Workspace]) -> list[str]:
    """Create the configuration file at `path` and the lake's tables if they are missing; returns what was created.

    id_type: the type of rule ids, by default "string". ConfigurationError if the file cannot be written, or if the
    existing table of rules has ids of another type than `id_type`.
    """
    made = []
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(TEMPLATE, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from None
        made.append(str(path))
    lake = workspace(load_configuration(path)).lake
    tables = [name for name in LAKE_TABLES if lake.create(name, id_type or "string")]
    if id_type and "rules" not in tables and (there := lake.rule_id_type()) != id_type:
        raise ConfigurationError(
            f"The rules of this lake have ids of type {there}, not {id_type}: that is fixed when the table is made."
        )
    return made + tables
