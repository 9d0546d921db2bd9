"""The rules that an index was compiled from, as the index keeps them.

The version of `rules` that had them may be gone: vacuumed, or of a table that was dropped and made anew since, in which
the same number stands for other rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

import rules_index as ri

_BOUND = pl.Datetime("us", "UTC")
_TEXT = {"expression": pl.String, "valid_from": pl.Int64, "valid_to": pl.Int64}
_FEW = 64
"""Up to so many texts are read one by one; each of them takes a block of `RuleTexts`."""


def indexed_rules(compiled: ri.CompiledRules, ids: Sequence[str | int] | None = None) -> pl.DataFrame:
    """rule_id, expression, valid_from and valid_to of the rules of an index, by ascending id; ids: of some of them.

    Ids that the index lacks are left out. Raises ArtifactError if the index has no texts, or damaged ones.
    """
    known = pl.Series("rule_id", pl.from_arrow(compiled.ids))
    chosen = pl.int_range(len(known), eager=True)
    if ids is not None:
        chosen = known.is_in(pl.Series(ids, dtype=known.dtype, strict=False).implode()).arg_true()
    try:
        if compiled.texts is None:
            raise ValueError("it keeps none")
        if len(chosen) <= _FEW:
            texts = pl.DataFrame([compiled.texts.rule(ordinal) for ordinal in chosen], _TEXT, orient="row")
        else:
            texts = pl.DataFrame(pl.from_arrow(compiled.texts.table(len(compiled))))[chosen]
    except (OSError, LookupError, ValueError, pa.ArrowException) as error:
        raise ri.ArtifactError(f"The index's rules cannot be read ({error}); compile the rules again.") from error
    return texts.select(known[chosen], "expression", pl.col("valid_from", "valid_to").cast(_BOUND))
