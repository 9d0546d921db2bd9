"""Functions with a bounded range of values, whatever their arguments."""

LEAST_AND_GREATEST = {
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
    "month": (1, 12),
    "quarter": (1, 4),
    "day": (1, 31),
    "dayofmonth": (1, 31),
    "dayofyear": (1, 366),
    "dayofweek": (1, 7),
    "weekday": (0, 6),
    "weekofyear": (1, 53),
}
"""The least and the greatest value of functions that return parts of dates and times."""
