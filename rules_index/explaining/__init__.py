"""Why a rule matches a row, or does not, and what would have to change; imported only when asked for."""
