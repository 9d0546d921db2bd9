"""Runs a command of deltatag with bombs let in by hand: `python tests/end_to_end/bombs.py tag first second`.

The analysis of rules refuses each of them. Here a harmless text that compiles is a bomb when Spark evaluates it.
"""

from __future__ import annotations

import sys

from pipelines.spark import catalyst

BOMBS = {
    "initcap(concat(s, 'oom'))": "string(length(concat(repeat(s, 150000000), repeat(s, 150000000))))",
    "initcap(concat(s, 'stack'))": "regexp_replace(repeat(s, 20000), '(a|b|c)*', 'x')",
    "initcap(concat(s, 'endless'))": (
        "string(exists(sequence(1, 100000), x -> exists(sequence(1, 100000), y -> exists(sequence(1, 100000), "
        "z -> x + y + z + length(s) < 0))))"
    ),
}

_derived_column = catalyst.derived_column


def let_in(spark, text, *others):
    """As `derived_column`, with the bomb that a text stands for."""
    bomb = BOMBS.get(text.replace("left.s", "s"))
    if bomb is not None and "left.s" in text:
        bomb = bomb.replace("(s,", "(left.s,")
    return _derived_column(spark, bomb or text, *others)


if __name__ == "__main__":
    catalyst.derived_column = let_in
    from deltatag.__main__ import main

    sys.exit(main(sys.argv[1:]))
