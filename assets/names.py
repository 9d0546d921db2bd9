"""Keys of the assets, names of the checks' steps, and words that all definitions share.

Dagster's page shows the last part of a key alone, so that no two keys end alike. A key of two parts is of what lies
within a table, and never clashes with the name of one.
"""

from __future__ import annotations

import dagster as dg

SPARK_POOL = "spark"
"""The concurrency pool of every step that runs Spark jobs."""
JOB = "run"
RULES = dg.AssetKey("rules")
MAINTENANCE = dg.AssetKey(["deltatag", "maintenance"])
"""Of two parts, so that it is no name of a stream."""
RESOURCE = "lake"


def source_key(stream: str) -> dg.AssetKey:
    """A stream's source."""
    return dg.AssetKey(stream)


def index_key(scope: str) -> dg.AssetKey:
    """A scope's part of `rule_index`."""
    return dg.AssetKey(["rule_index", f"{scope}_rule_index"])


def rejects_key(scope: str) -> dg.AssetKey:
    """A scope's part of `rule_rejects`."""
    return dg.AssetKey(["rule_rejects", f"{scope}_rule_rejects"])


def list_key(name: str) -> dg.AssetKey:
    """A list of values."""
    return dg.AssetKey(["lists", f"{name}_list"])


def runs_key(scope: str) -> dg.AssetKey:
    """A scope's part of `runs`."""
    return dg.AssetKey(["runs", f"{scope}_runs"])


def retag_key(stream: str) -> dg.AssetKey:
    """The days of a stream that were re-tagged."""
    return dg.AssetKey(["retag", f"{stream}_retag"])


def table_key(table: str) -> dg.AssetKey:
    """A table of one stream."""
    return dg.AssetKey(table)
