"""Numba kernels: loops over flat arrays, without Python and without the interpreter's lock."""
