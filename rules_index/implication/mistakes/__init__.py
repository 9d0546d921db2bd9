"""Mistakes that one rule's own text gives away, alone or beside what is known of the columns' values."""
