"""How a micro-batch is matched, and how its tables are written exactly once."""
