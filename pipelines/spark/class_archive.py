"""Class data sharing: an archive of the classes that every run loads, which makes the start a quarter faster.

A JVM writes it once, for `tools/archive_classes.py`. JVMs ignore an archive made by another Java or with other jars. A
truncated archive can crash them, so the file name contains the size.
"""

from __future__ import annotations

import hashlib
import shlex
from importlib.metadata import version
from pathlib import Path

from pipelines.spark.runtime import JavaHome, environment_folder

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Options that suppress the warning of a JVM that ignores an archive."""


def archive_folder() -> Path:
    """The folder in which set-up keeps archives."""
    return environment_folder() / "classes"


def archive_name(java: JavaHome, size: int | str) -> str:
    """The file name of the archive for a Java and the installed Spark; size: in bytes, or "*" for any."""
    program = java.path / "bin" / "java"  # another modification time is another Java at the same place
    made_of = f"{program}\0{program.stat().st_mtime_ns}\0{version('pyspark')}"
    return f"{hashlib.sha256(made_of.encode()).hexdigest()[:16]}-{size}.jsa"


def java_options(java: JavaHome, folder: Path) -> str:
    """Options by which a JVM starts with its archive in a folder; "" if there is no archive, or it is truncated."""
    for path in folder.glob(archive_name(java, "*")):
        # Java would split the option's value at a colon into the names of two archives
        if path.name == archive_name(java, path.stat().st_size) and ":" not in str(path):
            return f"{shlex.quote(f'-XX:SharedArchiveFile={path}')} {QUIET}"
    return ""
