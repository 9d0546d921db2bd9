"""The operations that are evaluated on Arrow columns, with Spark's meaning."""
