"""Pictures for metadata: PNG inside of Markdown, so that they need no file and no host."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

RULES_SHOWN = 25
_LABEL = 40


def matches_per_rule(title: str, counts: Sequence[tuple[Any, int]]) -> str:
    """A bar for each of the rules with most matches, as a Markdown image; `counts` has most matches first."""
    from matplotlib.figure import Figure

    shown = list(reversed(counts[:RULES_SHOWN]))
    figure = Figure(figsize=(8, 0.9 + 0.26 * len(shown)), dpi=80, layout="constrained")
    axes = figure.subplots()
    names = [str(rule) if len(str(rule)) <= _LABEL else f"{str(rule)[: _LABEL - 1]}…" for rule, _ in shown]
    bars = axes.barh(range(len(shown)), [count for _, count in shown], color="#3b6fb6")
    axes.set_yticks(range(len(shown)), names)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
    axes.margins(x=0.12)
    more = f" ({RULES_SHOWN} of {len(counts):,} rules)" if len(counts) > RULES_SHOWN else ""
    axes.set_title(f"{title}: matches per rule{more}", fontsize=10)
    axes.set_xlabel("matches in the newest micro-batches")
    axes.spines[["top", "right"]].set_visible(False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return f"![matches per rule](data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()})"
