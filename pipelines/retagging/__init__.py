"""Brings tables of tagged rows up to date after the rules have changed."""
