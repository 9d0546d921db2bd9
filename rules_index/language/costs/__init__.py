"""Upper bounds of the cost of a part of a rule in Spark, and the refusal of parts that cost too much."""
