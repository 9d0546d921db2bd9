"""What an index keeps of the rules of a full compile beside their texts, so that the next version can be made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DIGEST_BYTES = 16
"""Of a rule's digest: two rules of one digest are 2**64 attempts away."""


@dataclass(frozen=True)
class RuleSource:
    """The rules of a full compile: of each one's id, text and bounds a digest [rules, `DIGEST_BYTES`] uint8."""

    digests: np.ndarray
