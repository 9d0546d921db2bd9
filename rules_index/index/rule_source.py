"""What an index keeps of the rules of a full compile, besides their texts, to make the next version."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rules_index.index.shared_files import SharedFile

DIGEST_BYTES = 16
"""The length of a rule's digest: a collision is expected after 2**64 rules."""


@dataclass(frozen=True)
class RuleSource:
    """The rules of a full compile.

    digests  a digest of each one's id, text and bounds, [rules, `DIGEST_BYTES`] uint8
    file     the file that the index was loaded from; None if it is in no file, or in one not named by its content
    """

    digests: np.ndarray
    file: SharedFile | None = None
