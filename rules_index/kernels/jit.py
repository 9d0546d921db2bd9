"""How kernels are compiled: once for each signature, and cached on disk until the text of a kernel changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba

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
    """Compiles with the options of all kernels, and makes Numba's cache depend on the text of all kernels."""
    kernel: Any = numba.njit(nogil=True, cache=True, boundscheck=False, **options)(function)
    path = Path(function.__code__.co_filename)
    room = path.relative_to(_ROOT).parts[0] if path.is_relative_to(_ROOT) else "kernels"
    index = kernel._cache._cache_file
    index._source_stamp, index._load_index = _stamp(room), _or_nothing(index._load_index)
    kernel._cache.load_overload = partial(load, kernel._cache)
    return kernel


def _or_nothing(load: Callable[[], dict[Any, Any]]) -> Callable[[], dict[Any, Any]]:
    """Makes Numba treat an index of its cache that it cannot read as stale. Numba reads the names of types before the
    stamp, and this version of the code may no longer have them."""

    def loaded() -> dict[Any, Any]:
        """The content of the index; empty if it cannot be read."""
        try:
            return load()
        except OSError:
            raise
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
        return f"{archive.stat().st_mtime_ns} {archive.stat().st_size}"
    digest = hashlib.sha256()
    for path in sorted(paths):
        text = path.read_bytes()
        if b"jit" in text or b"intrinsic" in text:
            digest.update(text)
    return digest.hexdigest()
