"""What an edit of the rules changes in rows that are tagged already, and how their tables are brought up to date."""
