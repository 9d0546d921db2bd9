"""The system of Wang and Kitsuregawa: rows of several streams are joined as they arrive, and filtered by one index of
all queries with their partial dimension filtering algorithm (PDFA)."""
