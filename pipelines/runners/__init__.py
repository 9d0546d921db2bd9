"""The runners, which match and write a stream's rows: this process alone, or Spark."""
