"""Dagster definitions: they only assemble functions of the other packages."""
