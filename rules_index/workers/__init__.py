"""What Spark's Python workers run: matching, and the Parquet files and statistics that they write."""
