"""What Spark's Python workers run: matching, and writing Parquet files with their statistics."""
