"""The author of a commit: the user of the operating system, in the field where a table's history shows it."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import CommitProperties


def by_this_user() -> CommitProperties:
    """Commit properties with this user as `userName`; empty if the system has no name for the user."""
    from deltalake import CommitProperties

    try:
        return CommitProperties(custom_metadata={"userName": getpass.getuser()})
    except (KeyError, OSError):  # a container whose user has no name
        return CommitProperties()
