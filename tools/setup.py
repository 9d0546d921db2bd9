"""Set the project up in `.venv`: locked packages, the project itself, a Java, Delta's jars.

Run by `make` with any Python 3.11 or later; it uses the standard library only. What has been done is noted by the
hash of what it depends on, so that a second run only looks at that note.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
NOTE = VENV / "share" / "deltatag" / "setup.json"
LOCK = ROOT / "requirements.txt"
sys.path.insert(0, str(ROOT))
from deltatag.progress import Progress  # noqa: E402

PROGRESS = Progress()
PACKAGES = ("deltatag", "assets", "quality", "pipelines", "rules_index")
JARS = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")
ARCHIVE_SECONDS = 600
# The lock pins these too; they come first because they build the packages that have no wheel.
BUILDERS = ("packaging", "pip", "setuptools", "wheel")


class SetupError(Exception):
    """Set-up cannot go on; the message says what is missing and where to put it."""


def main() -> int:
    """Bring `.venv` up to date; the exit status is 1, with one paragraph on standard error, where that failed."""
    started = time.monotonic()
    try:
        with open(LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would install into one folder
            if set_up():
                say(f"ready in {time.monotonic() - started:.0f} s")
    except SetupError as error:
        print(f"deltatag: {error}", file=sys.stderr)
        return 1
    return 0


def set_up() -> bool:
    """Do the steps that are due, in order; the answer is whether any was."""
    done = read_note()
    if "packages" not in done:
        done.pop("environment", None)  # never filled: look again whether it is of the Python that is wanted now
    steps: list[tuple[str, Callable[[], str], Callable[[], None]]] = [
        ("environment", environment_state, make_environment),
        ("packages", packages_state, install_packages),
        ("project", project_state, install_project),
        ("runtime", runtime_state, fetch_runtime),
        ("classes", classes_state, archive_classes),
        ("kernels", kernels_state, compile_kernels),
        ("bytecode", bytecode_state, compile_modules),  # last: modules are what changes most
    ]
    worked = False
    for name, state, action in steps:
        if worked or done.get(name) != state():
            action()
            worked = True
            done[name] = state()
            write_note(done)
    return worked


def environment_state() -> str:
    """Tells one usable environment from another, and from one that was moved or has lost its Python."""
    settings = VENV / "pyvenv.cfg"
    works = settings.is_file() and PYTHON.exists() and os.access(PYTHON, os.X_OK)
    return f"{VENV} {hashlib.sha256(settings.read_bytes()).hexdigest()}" if works else "missing"


def packages_state() -> str:
    return file_hash(LOCK)


def project_state() -> str:
    return file_hash(ROOT / "pyproject.toml")


def runtime_state() -> str:
    """What the search for Java and jars depends on, as far as it can be seen without running anything."""
    folder = Path(os.environ.get("DELTATAG_JARS") or VENV / "share" / "deltatag" / "jars")
    seen = [os.environ.get("JAVA_HOME", ""), shutil.which("java") or "", str(folder)]
    for name in JARS:
        path = folder / name
        seen.append(f"{path.stat().st_size} {path.stat().st_mtime_ns}" if path.is_file() else "missing")
    seen += [file_hash(ROOT / name) for name in ("pipelines/spark/runtime.py", "tools/fetch_jars.py")]
    return hashlib.sha256("\0".join(seen).encode()).hexdigest()


def classes_state() -> str:
    """What the archive of classes was made from, and with."""
    seen = [runtime_state()]
    seen += [file_hash(ROOT / name) for name in ("tools/archive_classes.py", "pipelines/spark/class_archive.py")]
    for java in (Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java", Path(shutil.which("java") or "")):
        seen.append(str(java.stat().st_mtime_ns) if java.is_file() else "missing")
    return hashlib.sha256("\0".join([*seen, file_hash(LOCK)]).encode()).hexdigest()


def kernels_state() -> str:
    """The sources of the kernels: what Numba's cache goes by."""
    modules = (ROOT / "rules_index").rglob("*.py")
    sources = [path for path in modules if path.name == "warm_up.py" or "rules_index.kernels" in path.read_text()]
    sources += (ROOT / "rules_index" / "kernels").glob("*.py")
    return hashlib.sha256("".join(file_hash(path) for path in sorted(set(sources))).encode()).hexdigest()


def bytecode_state() -> str:
    """The sources of the project's packages."""
    sources = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return hashlib.sha256("".join(f"{path} {path.stat().st_mtime_ns}" for path in sources).encode()).hexdigest()


def make_environment() -> None:
    """Make `.venv` where it is missing, or broken by a move or by a Python that has gone."""
    version = environment_version()
    if version >= (3, 11) and (version == sys.version_info[:2] or "packages" in read_note()):
        return
    say(f"making .venv with Python {'.'.join(map(str, sys.version_info[:3]))}")
    with PROGRESS.during("making .venv"):
        run = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True)
    if run.returncode != 0:
        raise SetupError(
            f"Python's own module venv could not make {VENV}: {last_line(run.stdout + run.stderr)}\n"
            "On Debian and Ubuntu it is the package python3-venv; any other Python 3.11 or later that has it can be "
            "named with `make setup PYTHON=/path/to/python3`."
        )


def environment_version() -> tuple[int, ...]:
    """The version of the environment's Python if it runs and thinks that it lives here, else ()."""
    code = "import pip, sys; print(sys.prefix); print(*sys.version_info[:2])"
    try:
        run = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, timeout=60)
        prefix, version = run.stdout.splitlines()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    scripts = VENV / "bin" / "pip"
    # A copied or moved environment runs, but its scripts still start the Python of the old place.
    at_home = Path(prefix) == VENV and (not scripts.is_file() or str(VENV) in scripts.read_text(errors="replace"))
    return tuple(int(part) for part in version.split()) if at_home else ()


def install_packages() -> None:
    """Install exactly what the lock names; every file is checked against its hash, also what builds others."""
    say("installing the packages of requirements.txt: minutes where nothing is cached")
    builders = NOTE.parent / "builders.txt"
    builders.parent.mkdir(parents=True, exist_ok=True)
    builders.write_text(locked(BUILDERS))
    pip_install("--requirement", str(builders))
    pip_install("--no-build-isolation", "--requirement", str(LOCK))


def locked(names: tuple[str, ...]) -> str:
    """The lines of the lock, with their hashes, for some packages."""
    entries = re.split(r"\n(?=\S)", LOCK.read_text())
    return "\n".join(entry for entry in entries if entry.split("==")[0].split("[")[0] in names) + "\n"


def pip_install(*arguments: str) -> None:
    """Run pip with every hash required. It learns nothing from us about where packages come from."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--progress-bar", "off", "--require-hashes", *arguments]
    with PROGRESS.during("installing packages"):
        run = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, env=pip_environment())
    if run.returncode == 0:
        return
    raise SetupError(pip_failure(run.stderr))


def pip_failure(said: str) -> str:
    """Why pip failed, and where nothing could be downloaded also how to go on without a network."""
    lines = [line for line in said.splitlines() if not line.startswith("WARNING: Retrying")]
    reason = "the packages of requirements.txt could not be installed into .venv:\n" + "\n".join(lines)
    if not re.search(r"Retrying|No matching distribution|ConnectionError|timed out|SSLError", said):
        return reason
    return (
        f"{reason}\nWithout a network, make a folder of the packages on a machine of the same kind that has one "
        "and the same Python: `make setup`, then `.venv/bin/python -m pip download --no-build-isolation --requirement "
        "requirements.txt --dest wheels`. Here, run `PIP_NO_INDEX=1 PIP_FIND_LINKS=/path/to/wheels make setup`. "
        f"Delta's jars are needed as well: {JARS[0]} and {JARS[1]} (Maven Central, group io.delta; there, in "
        ".venv/share/deltatag/jars), in a folder that the environment variable DELTATAG_JARS names."
    )


def pip_environment() -> dict[str, str]:
    """The caller's environment without what would send pip's work to another place than `.venv`."""
    unwanted = ("PIP_REQUIRE_VIRTUALENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def install_project() -> None:
    """Make the project's packages and its command available in `.venv`, from where their source stands."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-index", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    with PROGRESS.during("installing the project"):
        run = subprocess.run(command, capture_output=True, text=True, env=pip_environment())
    if run.returncode != 0:
        sys.stderr.write(run.stdout + run.stderr)
        raise SetupError("the project could not be installed into .venv; pip's reason stands above.")


def fetch_runtime() -> None:
    """Find a Java and see that Delta's jars are there."""
    with PROGRESS.during("looking for Java and Delta's jars"):
        run = subprocess.run([str(PYTHON), str(ROOT / "tools" / "fetch_jars.py")])
    if run.returncode != 0:
        raise SetupError("set-up ends here: `make setup` goes on from this point once that is there.")


def archive_classes() -> None:
    """Spare each start of Spark a quarter of its time; what fails here costs nothing but that."""
    say("archiving the classes of Spark")
    with contextlib.suppress(subprocess.TimeoutExpired), PROGRESS.during("archiving the classes of Spark"):
        run_with_kernels("from tools.archive_classes import archive; archive()", ARCHIVE_SECONDS)


def compile_kernels() -> None:
    """Spare the first run the minutes in which Numba compiles; what fails here is told by that run."""
    say("compiling the kernels")
    with PROGRESS.during("compiling the kernels"):
        run_with_kernels("from rules_index.warm_up import warm_up; warm_up()")


def compile_modules() -> None:
    """Spare each command the compiling of its modules, also where Python is told to leave no bytecode."""
    command = [str(PYTHON), "-m", "compileall", "-q", *(str(ROOT / name) for name in PACKAGES)]
    subprocess.run(command, capture_output=True)


def run_with_kernels(code: str, timeout: float | None = None) -> None:
    """Run Python code where it finds, and leaves, the kernels that Numba has compiled."""
    cache = (
        "import os; from pipelines.spark.runtime import numba_cache_folder as folder; "
        "os.environ['NUMBA_CACHE_DIR'] = str(folder()); "
    )
    subprocess.run([str(PYTHON), "-c", cache + code], cwd=ROOT, capture_output=True, timeout=timeout)


def read_note() -> dict[str, str]:
    """What each step depended on when it was last done, by the step's name; empty where nothing is known."""
    try:
        note = json.loads(NOTE.read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_note(done: dict[str, str]) -> None:
    """Keep what each step depended on, all of it or none."""
    NOTE.parent.mkdir(parents=True, exist_ok=True)
    partial = NOTE.with_suffix(".partial")
    partial.write_text(json.dumps(done, indent=1))
    os.replace(partial, NOTE)


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def say(text: str) -> None:
    print(f"deltatag: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
