"""The engines by name. An engine's module is imported on first use: most runs need only one."""

from __future__ import annotations

from pkgutil import resolve_name

from rules_index.index.engine import Engine

ENGINES = {
    "hybrid": "rules_index.index.hybrid:Hybrid",
    "asc": "rules_index.engines.asc.engine:Asc",
    "be_tree": "rules_index.engines.be_tree.engine:BETree",
    "r_tree": "rules_index.engines.r_tree.engine:RTree",
    "grid_file": "rules_index.engines.grid_file.engine:GridFile",
    "cei": "rules_index.engines.cei.engine:Cei",
    "scan": "rules_index.engines.scan:Scan",
}
"""Module and class of each engine, `package.module:Class`."""


def engine_class(name: str) -> type[Engine]:
    """The class of an engine. Raises `KeyError` for an unknown name."""
    found: type[Engine] = resolve_name(ENGINES[name])
    return found
