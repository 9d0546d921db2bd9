"""String arrays of any Arrow layout as the buffers that the kernels read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def buffers(strings: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """UTF-8 bytes, offsets `[rows + 1] int64` into them, and which rows `[rows] bool` are not NULL."""
    if not pa.types.is_large_string(strings.type):
        strings = strings.cast(pa.large_string(), safe=False)
    _, offset_buffer, data_buffer = strings.buffers()
    if len(strings) == 0 or offset_buffer is None:
        offsets = np.zeros(len(strings) + 1, np.int64)
    else:
        offsets = np.frombuffer(offset_buffer, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    valid = pc.is_valid(strings).to_numpy(zero_copy_only=False)
    return data, offsets, valid


def with_nulls(found: npt.NDArray[np.bool_], valid: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """The results as BOOLEAN, NULL where the string was."""
    return pa.array(found, pa.bool_(), mask=None if valid.all() else ~valid)
