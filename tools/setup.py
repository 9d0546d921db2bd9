"""Sets the project up in `.venv`: locked packages, the project itself, a Java, Delta's jars.

Run by `make` with any Python 3.11 or later; it uses the standard library only. A note records each finished step with a
hash of what it depends on, so that a second run only reads the note.
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
# The lock pins these, too; they are installed first because they build the packages that have no wheel.
BUILDERS = ("packaging", "pip", "setuptools", "wheel")


class SetupError(Exception):
    """Set-up cannot go on; the message says what is missing and where to put it."""


def main() -> int:
    """Bring `.venv` up to date; the exit status is 1, with one paragraph on standard error, if that fails."""
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
    """Run the steps that are due, in order; returns whether there were any."""
    done = read_note()
    if "packages" not in done:
        done.pop("environment", None)  # an empty environment may be of another Python than is wanted now
    steps: list[tuple[str, Callable[[], str], Callable[[], None]]] = [
        ("environment", environment_state, make_environment),
        ("packages", packages_state, install_packages),
        ("project", project_state, install_project),
        ("runtime", runtime_state, fetch_runtime),
        ("classes", classes_state, archive_classes),
        ("kernels", kernels_state, compile_kernels),
        ("bytecode", bytecode_state, compile_modules),  # last: modules change most often
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
    """The identity of a usable environment; "missing" if it was moved or has lost its Python."""
    settings = VENV / "pyvenv.cfg"
    works = settings.is_file() and PYTHON.exists() and os.access(PYTHON, os.X_OK)
    return f"{VENV} {hashlib.sha256(settings.read_bytes()).hexdigest()}" if works else "missing"


def packages_state() -> str:
    """The hash of the lock file."""
    return file_hash(LOCK)


def project_state() -> str:
    """The hash of the project's metadata."""
    return file_hash(ROOT / "pyproject.toml")


def runtime_state() -> str:
    """A hash of what the search for Java and jars depends on, computed without running anything."""
    folder = Path(os.environ.get("DELTATAG_JARS") or VENV / "share" / "deltatag" / "jars")
    seen = [os.environ.get("JAVA_HOME", ""), shutil.which("java") or "", str(folder)]
    for name in JARS:
        path = folder / name
        seen.append(f"{path.stat().st_size} {path.stat().st_mtime_ns}" if path.is_file() else "missing")
    seen += [file_hash(ROOT / name) for name in ("pipelines/spark/runtime.py", "tools/fetch_jars.py")]
    return hashlib.sha256("\0".join(seen).encode()).hexdigest()


def classes_state() -> str:
    """A hash of what the class archive depends on."""
    seen = [runtime_state()]
    seen += [file_hash(ROOT / name) for name in ("tools/archive_classes.py", "pipelines/spark/class_archive.py")]
    for java in (Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java", Path(shutil.which("java") or "")):
        seen.append(str(java.stat().st_mtime_ns) if java.is_file() else "missing")
    return hashlib.sha256("\0".join([*seen, file_hash(LOCK)]).encode()).hexdigest()


def kernels_state() -> str:
    """A hash of the sources of the kernels, on which Numba's cache depends."""
    modules = (ROOT / "rules_index").rglob("*.py")
    sources = [path for path in modules if path.name == "warm_up.py" or "rules_index.kernels" in path.read_text()]
    sources += (ROOT / "rules_index" / "kernels").glob("*.py")
    return hashlib.sha256("".join(file_hash(path) for path in sorted(set(sources))).encode()).hexdigest()


def bytecode_state() -> str:
    """A hash of the paths and modification times of the project's sources."""
    sources = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return hashlib.sha256("".join(f"{path} {path.stat().st_mtime_ns}" for path in sources).encode()).hexdigest()


def make_environment() -> None:
    """Create `.venv` if it is missing, was moved, or has lost its Python."""
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
    """The version of the environment's Python, if it runs and belongs to this folder; else ()."""
    code = "import pip, sys; print(sys.prefix); print(*sys.version_info[:2])"
    try:
        run = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, timeout=60)
        prefix, version = run.stdout.splitlines()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    scripts = VENV / "bin" / "pip"
    # a copied or moved environment runs, but its scripts start the Python at the old place
    at_home = Path(prefix) == VENV and (not scripts.is_file() or str(VENV) in scripts.read_text(errors="replace"))
    return tuple(int(part) for part in version.split()) if at_home else ()


def install_packages() -> None:
    """Install exactly what the lock names; every file, build tools included, is checked against its hash."""
    say("installing the packages of requirements.txt: minutes where nothing is cached")
    builders = NOTE.parent / "builders.txt"
    builders.parent.mkdir(parents=True, exist_ok=True)
    builders.write_text(locked(BUILDERS))
    pip_install("--requirement", str(builders))
    pip_install("--no-build-isolation", "--requirement", str(LOCK))


def locked(names: tuple[str, ...]) -> str:
    """The lines of the lock for some packages, with their hashes."""
    entries = re.split(r"\n(?=\S)", LOCK.read_text())
    return "\n".join(entry for entry in entries if entry.split("==")[0].split("[")[0] in names) + "\n"


def pip_install(*arguments: str) -> None:
    """Run pip with hashes required; indexes and mirrors are left to the user's own settings of pip."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--progress-bar", "off", "--require-hashes", *arguments]
    with PROGRESS.during("installing packages"):
        run = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, env=pip_environment())
    if run.returncode == 0:
        return
    raise SetupError(pip_failure(run.stderr))


def pip_failure(said: str) -> str:
    """Why pip failed; if downloads failed, also how to go on without a network."""
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
    """The caller's environment without variables that would make pip install elsewhere than in `.venv`."""
    unwanted = ("PIP_REQUIRE_VIRTUALENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


def install_project() -> None:
    """Install the project's packages and its command into `.venv`, as editable."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-index", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    with PROGRESS.during("installing the project"):
        run = subprocess.run(command, capture_output=True, text=True, env=pip_environment())
    if run.returncode != 0:
        sys.stderr.write(run.stdout + run.stderr)
        raise SetupError("the project could not be installed into .venv; pip's reason stands above.")


def fetch_runtime() -> None:
    """Find a Java, and check or fetch Delta's jars."""
    with PROGRESS.during("looking for Java and Delta's jars"):
        run = subprocess.run([str(PYTHON), str(ROOT / "tools" / "fetch_jars.py")])
    if run.returncode != 0:
        raise SetupError("set-up ends here: `make setup` goes on from this point once that is there.")


def archive_classes() -> None:
    """Create the class archive, which makes each start of Spark a quarter faster; failures are ignored."""
    say("archiving the classes of Spark")
    with contextlib.suppress(subprocess.TimeoutExpired), PROGRESS.during("archiving the classes of Spark"):
        run_with_kernels("from tools.archive_classes import archive; archive()", ARCHIVE_SECONDS)


def compile_kernels() -> None:
    """Compile the Numba kernels, which would take minutes in the first run; that run reports failures."""
    say("compiling the kernels")
    with PROGRESS.during("compiling the kernels"):
        run_with_kernels("from rules_index.warm_up import warm_up; warm_up()")


def compile_modules() -> None:
    """Compile the modules to bytecode, even if Python is configured to write none."""
    command = [str(PYTHON), "-m", "compileall", "-q", *(str(ROOT / name) for name in PACKAGES)]
    subprocess.run(command, capture_output=True)


def run_with_kernels(code: str, timeout: float | None = None) -> None:
    """Run Python code with Numba's cache folder set; timeout in seconds."""
    cache = (
        "import os; from pipelines.spark.runtime import numba_cache_folder as folder; "
        "os.environ['NUMBA_CACHE_DIR'] = str(folder()); "
    )
    subprocess.run([str(PYTHON), "-c", cache + code], cwd=ROOT, capture_output=True, timeout=timeout)


def read_note() -> dict[str, str]:
    """The recorded state of each step, by name; empty if there is no note."""
    try:
        note = json.loads(NOTE.read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def write_note(done: dict[str, str]) -> None:
    """Record the state of each step, atomically."""
    NOTE.parent.mkdir(parents=True, exist_ok=True)
    partial = NOTE.with_suffix(".partial")
    partial.write_text(json.dumps(done, indent=1))
    os.replace(partial, NOTE)


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def last_line(text: str) -> str:
    """The last line of a text that is not blank."""
    return (text.strip().splitlines() or ["no message"])[-1]


def say(text: str) -> None:
    """Print a line about the progress."""
    print(f"deltatag: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
