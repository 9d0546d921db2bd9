"""What errors of other libraries and of the operating system say, in words for people."""

from __future__ import annotations

import errno
import re

AGAIN = "Nothing is lost: free some space and run the same command again, which goes on where it stopped."
"""Advice for a full disk, if the interrupted work goes on from its plan in `runs`."""

_DENIED = {
    errno.EACCES: "this user has no permission for it",
    errno.EPERM: "this user has no permission for it",
    errno.EROFS: "the file system is read-only",
}
# Rust libraries such as delta-rs end their messages with the errno in this form
_DENIED_TEXTS = {f"(os error {number})": number for number in _DENIED}
_FULL = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than this process may write",
}
_FULL_TEXTS = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "File too large": errno.EFBIG,
}
_NOT_REACHED = re.compile(r"\bGeneric \w+ error\b")
"""How delta-rs says that a store was not reached, or did not do what it was asked for."""
_CAUSE = "\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}"
_MARKS = re.compile(rf"\x1b\[\d*m|{_CAUSE}")
_JVM_CALL = "An error occurred while calling "
_TRACEBACK = "Traceback (most recent call last):"
_FEATURES = re.compile(r"Unsupported table features required|Feature '\w+' is not supported")
_ADVICE = {
    _FEATURES: (
        "only Spark knows this table feature: drop it with ALTER TABLE ... DROP FEATURE, or use deltatag sql for edits"
    ),
    re.compile(r"table is append-only"): (
        "to replace rows of it: ALTER TABLE ... SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
    ),
    re.compile(r"failed validation check|CHECK constraint .+ violated"): (
        "a constraint that was added to the table refuses rows; to accept them: ALTER TABLE ... DROP CONSTRAINT"
    ),
    re.compile(r"_last_checkpoint hint but didn't find"): (
        "put the checkpoint back into _delta_log from a copy, or if all commits from version 0 are there, remove "
        "_delta_log/_last_checkpoint"
    ),
}
"""What to do about an error of delta-rs, by what its text has."""


def first_line(error: object) -> str:
    """The first non-empty line of an error's text, for a message of one paragraph; the class's name if there is none.

    An error of an object store has a line for each cause in turn: all lines are joined. One of Spark's Python workers
    has what was raised after the last stack trace, and one of the JVM its exception after a line about the call. If
    the line ends in a colon, the next one belongs to it.
    """
    stated, is_traced, trace = str(error).rpartition(_TRACEBACK)
    if is_traced:
        raised = next((line for line in trace.splitlines() if line and not line.startswith(" ")), "")
        return f"{' '.join(stated.partition(_TRACEBACK)[0].split())} {raised}".strip()
    lines = [line.strip() for line in _MARKS.sub("", str(error)).splitlines()]
    found = [line for line in lines if line] or [type(error).__name__]
    if found[0].startswith(_JVM_CALL) and len(found) > 1 and found[1].startswith(": "):
        found = [found[1][2:]]
    text = ": ".join(found) if _CAUSE in str(error) else found[0]
    if text.endswith(":") and len(found) > 1:
        text = f"{text} {found[1]}"
    advice = next((advice for pattern, advice in _ADVICE.items() if pattern.search(text)), None)
    return f"{text} ({advice})" if advice else text


def spark_message(error: Exception) -> str:
    """The first line of a Spark error without its class and SQL state, for the author of a rule."""
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", first_line(error))
    return re.sub(r"\s*SQLSTATE: [0-9A-Z]{5}.*$", "", text)


def is_refused(error: object) -> bool:
    """Whether delta-rs refuses a commit for the table's features or properties, so that to try again is of no use."""
    return any(pattern.search(str(error)) for pattern in _ADVICE)


def why_denied(error: BaseException) -> str | None:
    """Why this user cannot read or write a file, as a clause; None if the error is about something else."""
    return _reason(error, _DENIED, _DENIED_TEXTS)


def is_out_of_reach(error: BaseException) -> bool:
    """Whether a file cannot be read for reasons outside of it: a missing permission, or a store that is not reached."""
    return why_denied(error) is not None or _NOT_REACHED.search(str(error)) is not None


def why_full(error: BaseException) -> str | None:
    """Why a write found no space, as a clause; None if it failed for another reason."""
    return _reason(error, _FULL, _FULL_TEXTS)


def _reason(error: BaseException, reasons: dict[int, str], texts: dict[str, int]) -> str | None:
    """The reason for an error, by its errno.

    Libraries may report the errno only in their text, or only in the error that caused theirs: so `texts` are looked
    for, too, and the chain of causes is followed.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in reasons:
            return reasons[seen.errno]
        if found := next((number for text, number in texts.items() if text in str(seen)), 0):
            return reasons[found]
        seen = seen.__cause__ or seen.__context__
    return None
