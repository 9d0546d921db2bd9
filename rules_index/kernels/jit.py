"""How kernels are compiled: once for each signature, and cached on disk until the text of a kernel changes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import IndexDataCacheFile

from rules_index.kernel_cache import SET_UP
from rules_index.kernels.cached_code import load

_ROOT = Path(__file__).parent.parent
if "NUMBA_CACHE_DIR" not in os.environ and os.access(SET_UP, os.W_OK):
    vars(numba.config)["CACHE_DIR"] = str(SET_UP)


def jit(function: Callable[..., Any]) -> Any:
    """Compiles a kernel that releases the GIL and checks no bounds.

    Numba invalidates a cached kernel only if the kernel's own file changes, though the code of the kernels that it
    calls is compiled into it. Here a change to any file with kernels invalidates it, in this folder or in that of the
    kernel.
    """
    return _compiled(function)


def inner(function: Callable[..., Any]) -> Any:
    """Like `jit`, for functions that only kernels call: leaves out the wrappers for Python, which take long to
    compile."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def bare(function: Callable[..., Any]) -> Any:
    """Like `inner`, for functions that neither allocate nor return arrays: leaves out reference counting of their
    arguments, which costs an atomic addition each and keeps the compiler from inlining."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Like `bare`, and always inlined. An array is passed as seven arguments or more, so a call with many arrays takes
    hundreds of nanoseconds, longer than these functions themselves."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, forceinline=True)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Compiles with the options of all kernels, and makes Numba's cache depend on the text of all kernels. If no folder
    for the cache can be written, each process compiles its kernels itself."""
    options |= {"nogil": True, "boundscheck": False}
    try:
        kernel: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
    path = Path(function.__code__.co_filename)
    room = path.relative_to(_ROOT).parts[0] if path.is_relative_to(_ROOT) else "kernels"
    stamp, cached = _stamp(room), kernel._cache
    if not path.exists():
        _share(cached, "_".join([*path.relative_to(_ROOT).parts[:-1], stamp[:16]]))
    index = cached._cache_file
    index._source_stamp, index._load_index = stamp, _or_nothing(index._load_index)
    # Numba writes its index before the data: were the data named as before, a process that reads or ends in between
    # would leave the data of an earlier text under the new stamp
    index._data_name_pattern = f"{cached._impl.filename_base}.{stamp[:16]}.{{number:d}}.nbc"
    cached.load_overload = partial(load, cached)
    cached.save_overload = partial(_save, cached, cached.save_overload)
    return kernel


def _share(cached: Any, name: str) -> None:
    """Gives kernels from an archive a folder that depends on the archive's content. Numba's depends on its path, and
    each application of a cluster gets the archive in a folder of its own."""
    locator = cached._impl.locator
    folder = vars(numba.config)["CACHE_DIR"] or os.path.dirname(locator.get_cache_path())
    locator._cache_path = os.path.join(folder, name)
    cached._cache_file = IndexDataCacheFile(locator.get_cache_path(), cached._impl.filename_base, None)


def _save(cached: Any, save: Callable[..., None], signature: Any, compiled: Any) -> None:
    """Caches a compiled kernel, in place of those of earlier texts. A process that has no space or no permission for
    that goes on with the kernel that it has compiled."""
    with contextlib.suppress(OSError):
        save(signature, compiled)
        index = cached._cache_file
        kept = set(index._load_index().values())
        for path in Path(index._index_path).parent.glob(f"{cached._impl.filename_base}.*.nbc"):
            if path.name not in kept:
                path.unlink()


def _or_nothing(load: Callable[[], dict[Any, Any]]) -> Callable[[], dict[Any, Any]]:
    """Makes Numba treat an index of its cache that it cannot read as stale. Numba reads the names of types before the
    stamp, and this version of the code may no longer have them; or another user has written the cache."""

    def loaded() -> dict[Any, Any]:
        """The content of the index; empty if it cannot be read."""
        try:
            return load()
        except Exception:
            return {}

    return loaded


@cache
def _stamp(room: str) -> str:
    """A digest of the files with kernels, in this folder and in the folder `room` of the package."""
    paths = {path for folder in (room, "kernels") for path in (_ROOT / folder).rglob("*.py")}
    if not paths:
        # imported from an archive, where only the archive itself is a file
        archive = next(path for path in _ROOT.parents if path.exists())
        return hashlib.sha256(archive.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for path in sorted(paths):
        text = path.read_bytes()
        if b"jit" in text or b"intrinsic" in text:
            digest.update(text)
    return digest.hexdigest()
