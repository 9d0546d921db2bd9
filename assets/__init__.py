"""Dagster definitions, which only assemble the functions of the other layers."""
