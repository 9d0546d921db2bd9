"""What the verb explain needs: rows by a condition, the index that tagged them, and what only Spark evaluates."""
