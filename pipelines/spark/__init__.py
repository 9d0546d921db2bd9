"""Everything that is private to one Spark, one Delta and one JVM."""
