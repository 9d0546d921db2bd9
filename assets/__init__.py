"""Dagster definitions, which only assemble what the other layers do."""
