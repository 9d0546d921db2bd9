"""The contents of a scope's report, and the page that shows it."""
