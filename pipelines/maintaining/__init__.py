"""Maintenance of deltatag's own tables: compaction, retention, and what readers still need."""
