"""Finds out from an error that a write found no space on the disk, and says what to do."""

from __future__ import annotations

import errno

AGAIN = "Nothing is lost: free some space and run the same command again, which goes on where it stopped."
"""What people should do about a full disk, where work goes on from what is recorded in `runs`."""
_REASONS = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than this process may write",
}
_TEXTS = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "File too large": errno.EFBIG,
}


def why_full(error: BaseException) -> str | None:
    """Why a write found no space, as a clause; None if it failed for another reason.

    Libraries tell of it in their text alone, or in an error that theirs was raised from.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _REASONS:
            return _REASONS[seen.errno]
        if found := next((number for text, number in _TEXTS.items() if text in str(seen)), None):
            return _REASONS[found]
        seen = seen.__cause__ or seen.__context__
    return None
