"""Reads the rules that an index was compiled from out of the index itself.

Their version of `rules` may be gone: VACUUM may have removed it, or the table may have been dropped and created again,
so that the version number now stands for other rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

import rules_index as ri

_BOUND = pl.Datetime("us", "UTC")
_TEXT = {"expression": pl.String, "valid_from": pl.Int64, "valid_to": pl.Int64}
_FEW = 64
"""Maximum number of texts that are read one by one, which decodes a whole block of `RuleTexts` for each."""


def indexed_rules(compiled: ri.CompiledRules, ids: Sequence[str | int] | None = None) -> pl.DataFrame:
    """The columns rule_id, expression, valid_from and valid_to of an index's rules, by ascending id.

    ids: only of these rules; ids that the index lacks are left out. ArtifactError if the index has no texts, or damaged
    ones.
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
