"""Finds out from an error that this user may not read or write a file."""

from __future__ import annotations

import errno

_REASONS = {
    errno.EACCES: "this user has no permission for it",
    errno.EPERM: "this user has no permission for it",
    errno.EROFS: "the file system is read-only",
}


def why_denied(error: BaseException) -> str | None:
    """Why a file cannot be read or written, as a clause; None if it failed for another reason.

    Libraries tell of it in their text alone, or in an error that theirs was raised from.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _REASONS:
            return _REASONS[seen.errno]
        if found := next((number for number in _REASONS if f"(os error {number})" in str(seen)), None):
            return _REASONS[found]
        seen = seen.__cause__ or seen.__context__
    return None
