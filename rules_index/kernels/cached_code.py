"""Loads kernels from Numba's cache without what only the compilation of kernels needs."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from numba.core import environment
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target
from numba.core.runtime._nrt_python import c_helpers


def load(cached: Any, signature: Any, context: Any) -> Any:
    """A kernel from its cache; None if it has not been compiled for the signature.

    Numba's own `load_overload` first registers all functions that a kernel may call, and compiles its runtime. Both
    take longer than loading a kernel, and Numba also does both before it compiles one. Symbols that only the functions
    define, as for `prange` and for the hash of a text, must not be used by kernels.
    """
    _define_symbols()
    return cached._load_overload(signature, context)


@cache
def _define_symbols() -> None:
    """Tell LLVM where the parts of Numba's runtime are that are written in C. A cached kernel contains the others."""
    for name, address in c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """The environment of a cached function, as `_rebuild_env` of Numba makes it, but without importing the function's
    module: kernels contain functions of Numba's own modules, and machine code looks nothing up in them."""
    made = environment.lookup_environment(name)
    if made is None:
        made = environment.Environment(vars(sys.modules[module]) if module in sys.modules else {"__name__": module})
        made.consts[:], made.env_name = constants, name
        environment.Environment._memo[name] = made
    return made


class CachedLibrary(JITCodeLibrary):
    """Machine code from the cache. Its LLVM code is parsed once a kernel that calls it is compiled: that takes as long
    as loading the machine code, and several times its memory."""

    _machine_code, _bitcode = b"", b""

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Any:
        name, kind, data = state
        if kind != "object":
            return super()._unserialize(codegen, state)
        library = cls(codegen, name)
        library._machine_code, library._bitcode = data
        library.enable_object_caching()
        library._set_compiled_object(library._machine_code)
        library._finalize_final_module()
        return library

    def _get_module_for_linking(self) -> Any:
        if self._bitcode:
            self._shared_module, self._bitcode = llvm.parse_bitcode(self._bitcode), b""
            self._codegen._engine._load_defined_symbols(self._shared_module)
        return super()._get_module_for_linking()

    def get_pointer_to_function(self, name: str) -> int:
        """The address of a function, 0 if the library has none of that name."""
        if name.encode() + b"\0" in self._machine_code:
            self._codegen._engine._defined_symbols.add(name)
        return super().get_pointer_to_function(name)


cpu_target.target_context.codegen()._library_class = CachedLibrary
# caches name the function by the place where Numba has it
_environment.__module__, _environment.__qualname__ = environment.__name__, environment._rebuild_env.__qualname__
environment._rebuild_env = _environment
