"""Everything that depends on the internals of one version of Spark, of Delta Lake and of the JVM."""
