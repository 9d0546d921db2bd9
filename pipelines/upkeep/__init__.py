"""Keeping deltatag's own tables small: merging of files, retention, and what may not be touched."""
