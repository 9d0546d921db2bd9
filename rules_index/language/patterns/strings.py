"""String arrays of any Arrow layout as the buffers that the kernels read."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rules_index.arrays import is_text

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


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
    """The results as BOOLEAN, NULL where the string is NULL."""
    return pa.array(found, pa.bool_(), mask=None if valid.all() else ~valid)


def decodable(values: pa.Array) -> pa.Array:
    """Texts with U+FFFD in place of bytes that are not UTF-8, as Java decodes them; other values are returned
    unchanged.

    Spark stores such bytes as they are. Functions of Arrow and Polars raise on them, or read beyond the text.
    """
    if not is_text(values.type) or is_utf8(values):
        return values
    stored = values.cast(pa.large_binary()).to_pylist()
    return pa.array([None if each is None else as_java(each) for each in stored], values.type)


def is_utf8(texts: pa.Array) -> bool:
    """Whether all texts are valid UTF-8."""
    if _is_ascii(texts):
        return True
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_ascii(texts: pa.Array) -> bool:
    """Whether all bytes of texts are ASCII. This takes a tenth of the time of Arrow's check of UTF-8."""
    _, offsets, data = texts.buffers()
    if data is None or offsets is None or not len(texts):
        return True
    places = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(texts.type) else np.int32)
    written = np.frombuffer(data, np.int8)[places[texts.offset] : places[texts.offset + len(texts)]]
    return not len(written) or int(written.min()) >= 0


def as_java(data: bytes) -> str:
    """Decodes bytes as Java does: an encoded surrogate becomes one U+FFFD, and not three as in Python."""
    return _SURROGATE.sub("\ufffd".encode(), data).decode(errors="replace")
