"""Keys of the assets, names of the checks' steps, and words that all definitions share."""

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
    return dg.AssetKey(["rule_index", scope])


def rejects_key(scope: str) -> dg.AssetKey:
    """A scope's part of `rule_rejects`."""
    return dg.AssetKey(["rule_rejects", scope])


def runs_key(scope: str) -> dg.AssetKey:
    """A scope's part of `runs`."""
    return dg.AssetKey(["runs", scope])


def table_key(table: str) -> dg.AssetKey:
    """A table of one stream."""
    return dg.AssetKey(table)
