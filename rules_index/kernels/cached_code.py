"""Loads kernels from Numba's cache without what only the compilation of kernels needs."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys


def load(cached: Any, signature: Any, context: Any) -> Any:
    """A kernel from its cache; None if it has not been compiled for the signature.

    Numba's own `load_overload` first registers all functions that a kernel may call, which takes longer than loading a
    kernel. Numba also does so before it compiles one. Symbols that only this defines, as for `prange` and for the hash
    of a text, must not be used by kernels.
    """
    rtsys.initialize(context)
    return cached._load_overload(signature, context)


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
