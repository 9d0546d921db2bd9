"""The digest of a value list: the SHA-256 of its distinct values in ascending order. Lists with equal values have equal
digests, whatever edits they have had.

For integers, the digest covers the cuts, at which membership begins and ends; for byte strings their lengths, then
their bytes. A list with edits has these arrays only for its base: while they are digested, values that edits added are
spliced in, and values that edits removed are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rules_index.domains.list_keys import cuts_of
from rules_index.domains.region_codes import Regions
from rules_index.kernels.encode import encode_bytes


def digest_of(data_type: pa.DataType, count: int, base: Regions, difference: Regions | None) -> str:
    """The digest, in hex, of a list of `count` values. The list is the symmetric difference of `base` and `difference`
    (None for no difference)."""
    digest = hashlib.sha256(f"{data_type} {count}\n".encode())
    for part in _of_bytes(base, difference) if base.is_bytes else _of_integers(base, difference):
        digest.update(part)
    return digest.hexdigest()


def _of_integers(base: Regions, difference: Regions | None) -> Iterator[memoryview | bytes]:
    """The cuts of the list, as pieces of bytes. Membership changes at a cut of either set, and does not change at a cut
    of both."""
    cuts, others = cuts_of(base), cuts_of(difference) if difference is not None else np.empty(0, np.int64)
    places = np.searchsorted(cuts, others)
    is_there = np.zeros(len(others), bool)
    inside = places < len(cuts)
    is_there[inside] = cuts[places[inside]] == others[inside]
    new = [b"" if there else each.tobytes() for each, there in zip(others, is_there.tolist(), strict=True)]
    return _spliced(cuts, places, places + is_there, new)


def _of_bytes(base: Regions, difference: Regions | None) -> Iterator[memoryview | bytes]:
    """The lengths and then the bytes of the list's values, as pieces of bytes."""
    offsets, data = base.arrays["point_offsets"], base.arrays["point_data"]
    lengths = np.subtract(offsets[1:], offsets[:-1], dtype=np.int32, casting="unsafe")
    places = ends = np.empty(0, np.int64)
    new_lengths: list[bytes] = []
    new: list[bytes] = []
    if difference is not None:
        starts, new_data = difference.arrays["point_offsets"], difference.arrays["point_data"]
        ends, is_there = _ranks(base, starts, new_data)
        places = ends - is_there
        for first, last, is_in_base in zip(starts[:-1].tolist(), starts[1:].tolist(), is_there.tolist(), strict=True):
            new_lengths.append(b"" if is_in_base else np.int32(last - first).tobytes())
            new.append(b"" if is_in_base else new_data[first:last].tobytes())
    yield from _spliced(lengths, places, ends, new_lengths)
    yield from _spliced(data, offsets[places], offsets[ends], new)


def _ranks(base: Regions, offsets: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each byte string, how many points of the base are less than or equal to it [.] int64, and whether it is one
    of them [.] bool."""
    a = base.arrays
    count = len(a["point_codes"])
    ranks, codes = np.empty(len(offsets) - 1, np.int32), np.empty(len(offsets) - 1, np.int32)
    none, empty = np.zeros(1, np.int64), np.empty(0, np.uint8)
    encode_bytes(
        offsets, data, np.full(2, -1, np.int32), none, empty, np.empty(0, np.int32),
        a["point_offsets"], a["point_data"], np.arange(count + 1, dtype=np.int32), ranks,
    )  # fmt: skip
    encode_bytes(
        offsets, data, a["table"], a["point_offsets"], a["point_data"], a["point_codes"],
        a["offsets"], a["data"], a["codes"], codes,
    )  # fmt: skip
    return ranks.astype(np.int64), codes == 1


def _spliced(
    sequence: np.ndarray, places: np.ndarray, ends: np.ndarray, new: list[bytes]
) -> Iterator[memoryview | bytes]:
    """The bytes of a sequence in which each part [place, end) is replaced by new bytes; the parts ascend."""
    at = 0
    for first, last, each in zip(places.tolist(), ends.tolist(), new, strict=True):
        yield sequence[at:first].data
        yield each
        at = last
    yield sequence[at:].data
