"""The compression of the Parquet files that are written: Spark's setting, and the codec of that name in Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.errors import NeedsSparkError

if TYPE_CHECKING:
    from pipelines.workspace import Workspace

_CODECS = {"snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "uncompressed": "none", "none": "none"}
CODEC = "spark.sql.parquet.compression.codec"
"""Spark's setting for the compression of Parquet files."""
DEFAULT_CODEC = "snappy"
"""Spark's own default."""


def codec_named(name: str) -> str | None:
    """Arrow's name of a Parquet codec, by Spark's name; None if Arrow lacks it."""
    return _CODECS.get(name.lower())


def configured_codec(workspace: Workspace) -> str | None:
    """The codec of the files that this process writes, by the configuration; None if Arrow lacks it."""
    return codec_named(_configured(workspace))


def codec_of(workspace: Workspace) -> str:
    """The codec of the files that this process writes, by the configuration; NeedsSparkError if Arrow lacks it."""
    if reason := why_spark_compresses(workspace):
        raise NeedsSparkError(reason)
    return str(configured_codec(workspace))


def why_spark_compresses(workspace: Workspace) -> str | None:
    """Why Spark must write, as a clause; None if Arrow has the codec."""
    return f"files are to be compressed by {_configured(workspace)}" if configured_codec(workspace) is None else None


def _configured(workspace: Workspace) -> str:
    return workspace.configuration.spark.get(CODEC, DEFAULT_CODEC)
