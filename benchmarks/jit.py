"""How kernels of benchmarks are compiled: like the library's, and cached until the text of one of either changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

import rules_index.kernels.jit  # noqa: F401  (it tells Numba where to keep what it compiles)
from rules_index import engines, join, kernels

_FOLDERS = (Path(__file__).parent, *(Path(package.__path__[0]) for package in (engines, join, kernels)))


def jit(function: Callable[..., Any]) -> Any:
    """Compiles a kernel without the interpreter's lock and without bounds checks."""
    return _compiled(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Like `jit`, made a part of each kernel that calls it; for what makes no arrays."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False, forceinline=True)


def bare(function: Callable[..., Any]) -> Any:
    """Like `inlined`, where the compiler decides whether it is worth it."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False)


def inner(function: Callable[..., Any]) -> Any:
    """Like `jit`, for what only kernels call."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    kernel: Any = numba.njit(nogil=True, cache=True, boundscheck=False, **options)(function)
    # Numba looks at the kernel's own file only, though what it calls is compiled into it
    kernel._cache._cache_file._source_stamp = _stamp()
    return kernel


@cache
def _stamp() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in _FOLDERS for path in folder.rglob("*.py")):
        text = path.read_bytes()
        if b"jit" in text:
            digest.update(text)
    return digest.hexdigest()
