"""Match rows against many rules at once: the rule language, the index over it, and its file format."""

from rules_index.artifact import load, loads
from rules_index.compile import compile_rules
from rules_index.compiled import CompiledRules
from rules_index.errors import ArtifactError, RuleError, RulesIndexError, SchemaError

__all__ = [
    "ArtifactError",
    "CompiledRules",
    "RuleError",
    "RulesIndexError",
    "SchemaError",
    "compile_rules",
    "load",
    "loads",
]
