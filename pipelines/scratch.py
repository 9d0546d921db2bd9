"""Files that can be made again, and how they go: no process leaves any behind for long, and none loses its own.

Indexes are shared by all processes of a user. What one JVM needs (shuffled rows, copies of files, its log) is in a
folder of its own that only this user can read. A lock tells whether a process that uses a file or a folder still lives;
the JVM itself holds that of its folder, for it may outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: there only age tells
    fcntl = None  # type: ignore[assignment]

KEPT_SECONDS = 86_400.0
"""Age from which an index that nobody has asked for since, or what a killed process left, is removed."""
_MOST_REMOVED = 100
"""Files and folders that one clean-up removes, so that no run waits long for it."""
_LOCK = "lock"
_held: dict[str, int] = {}


def scratch_folder() -> Path:
    """A folder of this user's for files that can be made again: indexes laid out for mapping, what a JVM needs."""
    named = os.environ.get("DELTATAG_SCRATCH")
    if not named:
        return temporary_folder()
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def temporary_folder() -> Path:
    """This user's folder in the system's temporary one, made where it is missing; mode 0700.

    Where somebody else made it or can write to it, a folder of this process's own.
    """
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"deltatag-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # Whoever can write here can have us run code, or overwrite files through links: only our own folder will do.
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o022:
        return _process_folder()
    return folder


@functools.cache
def _process_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="deltatag-"))


def indexes_folder() -> Path:
    """Where indexes are laid out."""
    folder = scratch_folder() / "indexes"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def keep(path: Path) -> bool:
    """Have no clean-up remove a file as long as this process lives; False if one has just done so."""
    if str(path) in _held and _is_at(_held[str(path)], path):
        return True
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    if not _lock(handle, shared=True) or not _is_at(handle, path):
        os.close(handle)
        return False
    os.utime(path)
    if str(path) in _held:
        os.close(_held[str(path)])
    _held[str(path)] = handle
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is what stands at a path, and not another one that was put there since."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def jvm_folder() -> tuple[Path, int]:
    """A new folder for one JVM (mode 0700), and a file that whoever uses it keeps open."""
    parent = scratch_folder() / "jvm"
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    handle = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    _lock(handle, shared=True)
    folder = made.with_name(f"{os.getpid()}-{made.name.removeprefix('.new-')}")
    os.rename(made, folder)
    return folder, handle


def clean_up(now: float | None = None) -> int:
    """Remove what no living process uses: folders of JVMs at once, indexes after a day; gives how many were removed."""
    now = time.time() if now is None else now
    removed = 0
    for path, lock in _candidates(now):
        removed += _remove(path, lock)
        if removed == _MOST_REMOVED:
            break
    return removed


def _candidates(now: float) -> Iterator[tuple[Path, Path]]:
    """What may be removed, and the file whose lock tells whether anybody uses it."""
    folder = scratch_folder()
    for path in _within(folder / "jvm"):
        # a name that begins with a point is of a folder that is being made; without locks only age tells
        by_age = path.name.startswith(".") or fcntl is None
        if not by_age or _age(path, now) >= KEPT_SECONDS:
            yield path, path / _LOCK
    # and what versions before this one wrote
    for path in [*_within(folder / "indexes"), *folder.glob("spark-*.log")]:
        if _age(path, now) >= KEPT_SECONDS:
            yield path, path


def _remove(path: Path, lock: Path) -> bool:
    """Remove a file or a folder whose lock nobody holds; while it is removed nobody can come to hold it."""
    try:
        handle = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        handle = None
    except OSError:
        return False
    try:
        if handle is not None and not _lock(handle, shared=False):
            return False
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        return True
    except OSError:
        return False
    finally:
        if handle is not None:
            os.close(handle)


def _within(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _age(path: Path, now: float) -> float:
    """Seconds since a file was made or asked for; 0 where it is gone."""
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


def _lock(handle: int, shared: bool) -> bool:
    """Lock an open file for whoever has it open; False where others hold it."""
    if fcntl is None:
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with contextlib.suppress(OSError):
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        return True
    return False
