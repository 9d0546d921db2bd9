"""Scratch files, which can be created again, and their clean-up, which removes files that no process uses.

Index files are shared by all processes of a user. Each JVM has a folder of its own, which only this user can read, for
shuffled rows, copies of files and its log. A process locks the files that it uses, and its locks end with it. A JVM
itself locks its folder, since it may outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pipelines.errors import ScratchError

KEPT_SECONDS = 86_400.0
"""Seconds without use after which an index, or the remains of a killed process, are removed."""
_MOST_REMOVED = 100
"""Maximum number of files and folders that one clean-up removes, so that no run waits long for it."""
_LOCK = "lock"
_UNUSABLE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ENOENT, errno.ELOOP, errno.ENAMETOOLONG}
)
"""Errors of a folder in which nothing can be created, however often it is tried."""
_held: dict[str, int] = {}
"""The files that this process protects: path -> open handle, which has a shared lock."""


def scratch_folder() -> Path:
    """This user's folder for scratch files; `DELTATAG_SCRATCH` overrides the default."""
    named = os.environ.get("DELTATAG_SCRATCH")
    return _made(Path(named)) if named else temporary_folder()


def _made(folder: Path) -> Path:
    """The folder, created if missing (mode 0700). ScratchError if it cannot be."""
    with _usable(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Turn the errors of a folder in which nothing can be created into ScratchError; a full disk stays an OSError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNUSABLE:
            raise
        reason = "a file is in its place" if isinstance(error, FileExistsError) else error.strerror
        raise ScratchError(
            f"The folder for scratch files, {folder}, cannot be used: {reason}. Let the environment variable "
            "DELTATAG_SCRATCH name a folder that this user can write to."
        ) from error


def temporary_folder() -> Path:
    """This user's folder in the system's temporary folder, created if missing; mode 0700.

    If another user owns it or can write to it, a new folder of this process instead.
    """
    user = os.getuid()
    folder = _system_folder() / f"deltatag-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # a user who can write here could make this process run code, or overwrite files through links
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o022:
        return _process_folder()
    return folder


def _system_folder() -> Path:
    """The system's temporary folder. ScratchError if none can be written to, as where the disks of all are full."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise ScratchError(
            f"There is no folder for scratch files: {error.strerror} (no permission, or no space is left on the disk). "
            "Let the environment variable DELTATAG_SCRATCH name a folder that this user can write to."
        ) from error


@functools.cache
def _process_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="deltatag-"))


def indexes_folder() -> Path:
    """The folder of index files, which processes map into memory."""
    return _made(scratch_folder() / "indexes")


def new_file(folder: Path) -> tuple[int, Path]:
    """A new file in a folder for scratch files, and its open handle. ScratchError if none can be created there."""
    with _usable(folder):
        handle, path = tempfile.mkstemp(dir=folder)
    return handle, Path(path)


def keep(path: Path) -> bool:
    """Protect a file from clean-ups as long as this process lives.

    False if a clean-up is just removing it, or this user may not read it.
    """
    if str(path) in _held and _is_at(_held[str(path)], path):
        return True
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        return False
    if not _lock(handle, shared=True) or not _is_at(handle, path):
        os.close(handle)
        return False
    with contextlib.suppress(PermissionError):
        os.utime(path)
    if str(path) in _held:
        os.close(_held[str(path)])
    _held[str(path)] = handle
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one at a path, and has not been replaced since."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def process_folder(kind: str) -> tuple[Path, int]:
    """A new folder for one process (mode 0700), and the handle of its lock file, which its users keep open.

    kind: "jvm" or "stores", for copies of files of object stores.
    """
    parent = _made(scratch_folder() / kind)
    with _usable(parent):
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    handle = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    _lock(handle, shared=True)
    folder = made.with_name(f"{os.getpid()}-{made.name.removeprefix('.new-')}")
    os.rename(made, folder)
    return folder, handle


def clean_up(now: float | None = None) -> int:
    """Remove what no living process uses, and return how many files and folders were removed.

    Folders of JVMs and stores are removed at once, indexes after `KEPT_SECONDS`.
    """
    now = time.time() if now is None else now
    removed = 0
    for path, lock in _candidates(now):
        removed += _remove(path, lock)
        if removed == _MOST_REMOVED:
            break
    return removed


def _candidates(now: float) -> Iterator[tuple[Path, Path]]:
    """Paths that may be removed, each with the file whose lock shows whether it is in use."""
    folder = scratch_folder()
    for path in (*_within(folder / "jvm"), *_within(folder / "stores")):
        # a folder whose name begins with "." is still being created
        if not path.name.startswith(".") or _age(path, now) >= KEPT_SECONDS:
            yield path, path / _LOCK
    for path in _within(folder / "indexes"):
        if _age(path, now) >= KEPT_SECONDS:
            yield path, path


def _remove(path: Path, lock: Path) -> bool:
    """Remove a file or a folder, with its lock held exclusively; False if another process has locked it."""
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
    """Seconds since a file was last modified or used; 0 if it is gone."""
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


def _lock(handle: int, shared: bool) -> bool:
    """Lock an open file without waiting; False if other processes hold a conflicting lock."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with contextlib.suppress(OSError):
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
        return True
    return False
