"""How many random cases a test tries: a quarter in `make check`, all in `make test`, or as many as one asks for."""

from __future__ import annotations

import os


def cases(usual: int, variable: str = "") -> int:
    """`usual`, or what the environment's `variable` says, or a quarter where DELTATAG_QUICK is set."""
    asked = os.environ.get(variable)
    if asked is not None:
        return int(asked)
    return max(1, usual // 4) if os.environ.get("DELTATAG_QUICK") else usual
