"""The author of a commit: the user of the operating system, in a field that a table's history shows."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import CommitProperties
    from pyspark.sql import SparkSession

_NAME = "userName"
_SPARK_SETTING = "spark.databricks.delta.commitInfo.userMetadata"


def _this_user() -> str | None:
    """The user's name; None if the system has none, as for a user of a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def by_this_user() -> CommitProperties:
    """Commit properties with this user as `userName`; empty if the user has no name."""
    from deltalake import CommitProperties

    name = _this_user()
    return CommitProperties() if name is None else CommitProperties(custom_metadata={_NAME: name})


@contextmanager
def by_this_user_in_spark(spark: SparkSession) -> Iterator[None]:
    """Put this user's name into the metadata of the session's commits, unless the session sets other metadata. Spark
    lets nobody set `userName` itself."""
    name = _this_user()
    if name is None or spark.conf.get(_SPARK_SETTING, None):
        yield
        return
    spark.conf.set(_SPARK_SETTING, json.dumps({_NAME: name}))
    try:
        yield
    finally:
        spark.conf.unset(_SPARK_SETTING)


def author_of(commit: Mapping[str, Any]) -> str | None:
    """The author of a commit of a table's history; None if it names none."""
    if commit.get(_NAME):
        return str(commit[_NAME])
    try:
        found = json.loads(commit.get("userMetadata") or "null")
    except (ValueError, RecursionError):
        return None
    name = found.get(_NAME) if isinstance(found, dict) else None
    return name if isinstance(name, str) else None
