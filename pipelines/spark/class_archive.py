"""Class data sharing: an archive of the classes that every run loads, with which a run starts a quarter sooner.

`tools/archive_classes.py` has a JVM write it once. A JVM ignores an archive made by another Java or with other jars. A
truncated archive can crash it, so the file name contains the size.
"""

from __future__ import annotations

import hashlib
import shlex
from importlib.metadata import version
from pathlib import Path

from pipelines.spark.runtime import JavaHome, environment_folder

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Options without which a JVM that ignores an archive prints a warning."""


def archive_folder() -> Path:
    """The folder in which set-up keeps archives."""
    return environment_folder() / "classes"


def archive_name(java: JavaHome, size: int | str) -> str:
    """The file name of the archive for a Java and the installed Spark; size: in bytes, or "*" for any."""
    program = java.path / "bin" / "java"  # another modification time is another Java at the same place
    made_of = f"{program}\0{program.stat().st_mtime_ns}\0{version('pyspark')}"
    return f"{hashlib.sha256(made_of.encode()).hexdigest()[:16]}-{size}.jsa"


def java_options(java: JavaHome, folder: Path) -> str:
    """Options for a JVM to start with its archive in a folder; "" if there is none, or it is truncated."""
    for path in folder.glob(archive_name(java, "*")):
        # Java would split the option's value at a colon into the names of two archives
        if path.name == archive_name(java, path.stat().st_size) and ":" not in str(path):
            return f"{shlex.quote(f'-XX:SharedArchiveFile={path}')} {QUIET}"
    return ""
