"""Keys of the assets, and names that all definitions share.

Dagster's page shows only the last part of a key, so no two keys have the same last part. Keys with two parts cannot
clash with the name of a table. Dagster names the step that makes an asset after its key; no two steps may have the same
name, and none may be a keyword of Python. A stream may have any name, so the key of its source has two parts as well.
"""

from __future__ import annotations

import dagster as dg

SPARK_POOL = "spark"
"""The concurrency pool of every step that may run Spark jobs."""
JOB = "run"
RULES = dg.AssetKey("rules")
MAINTENANCE = dg.AssetKey(["deltatag", "maintenance"])
"""Has two parts, so that it cannot clash with the name of a stream."""
RESOURCE = "lake"


def source_key(stream: str) -> dg.AssetKey:
    """The key of a stream's source."""
    return dg.AssetKey(["source", stream])


def index_key(scope: str) -> dg.AssetKey:
    """The key of a scope's part of `rule_index`."""
    return dg.AssetKey(["rule_index", f"{scope}_rule_index"])


def rejects_key(scope: str) -> dg.AssetKey:
    """The key of a scope's part of `rule_rejects`."""
    return dg.AssetKey(["rule_rejects", f"{scope}_rule_rejects"])


def list_key(name: str) -> dg.AssetKey:
    """The key of a value list."""
    return dg.AssetKey(["lists", f"{name}_list"])


def runs_key(scope: str) -> dg.AssetKey:
    """The key of a scope's part of `runs`."""
    return dg.AssetKey(["runs", f"{scope}_runs"])


def retag_key(stream: str) -> dg.AssetKey:
    """The key of a stream's asset of re-tagged days."""
    return dg.AssetKey(["retag", f"{stream}_retag"])


def report_key(scope: str) -> dg.AssetKey:
    """The key of the report of a stream or a join."""
    return dg.AssetKey(["report", f"{scope}_report"])


def table_key(table: str) -> dg.AssetKey:
    """The key of a table that a stream or join writes."""
    return dg.AssetKey(table)
