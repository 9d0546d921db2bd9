"""Who edits a table: the user of the operating system, as the table's history has it."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltalake import CommitProperties


def by_this_user() -> CommitProperties:
    """What a commit says of its author, as Delta's history calls it; nothing where the system knows no user."""
    from deltalake import CommitProperties

    try:
        return CommitProperties(custom_metadata={"userName": getpass.getuser()})
    except (KeyError, OSError):  # a container whose user has no name
        return CommitProperties()
