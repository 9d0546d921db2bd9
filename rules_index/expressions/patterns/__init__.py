"""LIKE and RLIKE with Spark's exact meaning, in time linear in the value."""

from __future__ import annotations

from rules_index.expressions.patterns.like import LikeMatcher, check_like, like_matcher, like_prefix
from rules_index.expressions.patterns.rlike import RlikeMatcher, check_rlike, rlike_matcher

__all__ = [
    "LikeMatcher",
    "RlikeMatcher",
    "check_like",
    "check_rlike",
    "like_matcher",
    "like_prefix",
    "rlike_matcher",
]
