"""The configuration: its file, its sections, and the settings that decide what a rule means."""
