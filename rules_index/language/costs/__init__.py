"""Upper bounds of what Spark needs for a part of a rule, and the refusal of parts that need too much."""
