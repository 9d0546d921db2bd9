"""Recovery when a predicate ends Spark's JVM in the middle of a micro-batch."""
