"""The values of an attribute: as sets, and as the regions that named constants divide them into."""
