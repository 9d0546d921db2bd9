"""Spark jobs on Delta tables: rules to an index, new rows to tagged rows, one module for each verb."""
