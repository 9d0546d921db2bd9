"""The configuration: its file, its sections, and the Spark settings that decide what a rule means."""
