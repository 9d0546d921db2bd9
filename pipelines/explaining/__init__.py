"""The parts of the verb explain: rows by a condition, the index that tagged them, and derived columns."""
