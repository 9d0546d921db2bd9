"""Numba kernels: loops over flat arrays that release the interpreter's lock (GIL) and run no Python code."""
