"""How kernels are compiled: once for the types they are called with, kept on disk as long as no kernel changes."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

_ROOT = Path(__file__).parent.parent
_SET_UP = Path(sys.prefix) / "share" / "deltatag" / "numba"
"""Where set-up keeps the kernels that it compiles, for the command line, Spark's workers and whoever imports this."""
if "NUMBA_CACHE_DIR" not in os.environ and os.access(_SET_UP, os.W_OK):
    vars(numba.config)["CACHE_DIR"] = str(_SET_UP)


def jit(function: Callable[..., Any]) -> Any:
    """Compiles a kernel without the interpreter's lock and without bounds checks.

    Numba keeps a compiled kernel until the kernel's own file changes, though the code of the kernels that it calls is
    compiled into it; here it is kept until any file with kernels changes, in this folder or in the kernel's own.
    """
    return _compiled(function)


def inner(function: Callable[..., Any]) -> Any:
    """Like `jit`, for what only kernels call: it needs no wrappers for Python, which take long to compile."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def bare(function: Callable[..., Any]) -> Any:
    """Like `inner`, for what makes no arrays and returns none: without counting references to those that it reads. That
    would cost an atomic addition each time and keep the compiler from merging functions."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Like `bare`, made a part of each kernel that calls it. An array is passed as seven numbers or more: a call with
    many of them takes hundreds of nanoseconds, longer than what is called so."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, forceinline=True)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    kernel: Any = numba.njit(nogil=True, cache=True, boundscheck=False, **options)(function)
    path = Path(function.__code__.co_filename)
    room = path.relative_to(_ROOT).parts[0] if path.is_relative_to(_ROOT) else "kernels"
    kernel._cache._cache_file._source_stamp = _stamp(room)
    return kernel


@cache
def _stamp(room: str) -> str:
    """A digest of the files with kernels in a folder of the package and in this one."""
    paths = {path for folder in (room, "kernels") for path in (_ROOT / folder).rglob("*.py")}
    if not paths:
        # inside an archive only the archive is a file
        archive = next(path for path in _ROOT.parents if path.exists())
        return f"{archive.stat().st_mtime_ns} {archive.stat().st_size}"
    digest = hashlib.sha256()
    for path in sorted(paths):
        text = path.read_bytes()
        if b"jit" in text or b"intrinsic" in text:
            digest.update(text)
    return digest.hexdigest()
