"""What values an attribute has, as sets of values and as regions between named constants."""
