"""Why a rule matches a row, or does not, and what would have to change. Imported only on request."""
