"""How many random cases a test tries: a quarter in `make check` and `make test`, all in `make soak`, or as many as one
asks for. The first ones are the same everywhere, so that what fails in one fails in the other."""

from __future__ import annotations

import os

SOAK = bool(os.environ.get("DELTATAG_SOAK"))
"""True in `make soak`, which has hours."""


def cases(usual: int, variable: str = "") -> int:
    """What the environment's `variable` says, else a quarter of `usual`, or all where DELTATAG_SOAK is set."""
    asked = os.environ.get(variable)
    if asked is not None:
        return int(asked)
    return usual if SOAK else max(1, usual // 4)
