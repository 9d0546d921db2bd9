"""The engines, one folder for each paper's index; `rules_index.index.registry` finds them by name."""
