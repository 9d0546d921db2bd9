"""The engines, one folder for each paper's index; `rules_index.index.registry` has them by name."""
