"""An archive of the classes that every run loads, laid out as the JVM maps them: a run starts a quarter sooner with it.

`tools/archive_classes.py` has a JVM write it once. A JVM passes over an archive that another Java, or other jars, have
made; one that was cut short can end it, so its name tells its size.
"""

from __future__ import annotations

import hashlib
import shlex
from importlib.metadata import version
from pathlib import Path

from pipelines.spark.runtime import JavaHome, environment_folder

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Without these a JVM that passes over an archive says so on the terminal."""


def archive_folder() -> Path:
    """Where set-up keeps archives."""
    return environment_folder() / "classes"


def archive_name(java: JavaHome, size: int | str) -> str:
    """The file name of the archive for a Java and the installed Spark, of a size in bytes or of any ("*")."""
    program = java.path / "bin" / "java"  # another time of the file is another Java at the same place
    made_of = f"{program}\0{program.stat().st_mtime_ns}\0{version('pyspark')}"
    return f"{hashlib.sha256(made_of.encode()).hexdigest()[:16]}-{size}.jsa"


def java_options(java: JavaHome, folder: Path) -> str:
    """Options of a JVM that starts with the archive for it in a folder; "" where there is none, or not the whole."""
    for path in folder.glob(archive_name(java, "*")):
        # At a colon Java takes the option's value for the names of two archives.
        if path.name == archive_name(java, path.stat().st_size) and ":" not in str(path):
            return f"{shlex.quote(f'-XX:SharedArchiveFile={path}')} {QUIET}"
    return ""
