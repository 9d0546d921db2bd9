"""Rules outside their table: import and export of files, and the table's history."""
