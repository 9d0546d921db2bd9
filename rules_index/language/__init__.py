"""From the text of a rule to a Boolean formula over predicates on typed attributes."""

from rules_index.language.compiler import Compiler, compile_expression
from rules_index.language.scope import Scope

__all__ = ["Compiler", "Scope", "compile_expression"]
