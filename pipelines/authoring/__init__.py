"""Rules outside their table: in files, and in the table's history."""
