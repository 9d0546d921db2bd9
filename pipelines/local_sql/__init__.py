"""SQL statements that need no JVM: queries of one table, and edits of rules and of lists."""
