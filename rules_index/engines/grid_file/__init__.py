"""Multilevel grid file over boxes as points."""
