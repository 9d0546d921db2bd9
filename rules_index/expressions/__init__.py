"""Rule text to typed predicates: the rule language and its three-valued logic."""
