"""What a scope's report says, and the page that shows it."""
