"""LIKE and RLIKE with Spark's exact meaning, in time linear in the value."""

from __future__ import annotations

from rules_index.language.patterns.java_safety import is_only_java, is_safe_in_java, java_degree
from rules_index.language.patterns.like import LikeMatcher, check_like, like_as_java_regex, like_matcher, like_prefix
from rules_index.language.patterns.re2 import rlike_as_re2
from rules_index.language.patterns.rlike import RlikeMatcher, check_rlike, rlike_matcher

__all__ = [
    "LikeMatcher",
    "RlikeMatcher",
    "check_like",
    "check_rlike",
    "is_only_java",
    "is_safe_in_java",
    "java_degree",
    "like_as_java_regex",
    "like_matcher",
    "like_prefix",
    "rlike_as_re2",
    "rlike_matcher",
]
