"""Who takes a stream's rows through the index: this process alone, or Spark."""
