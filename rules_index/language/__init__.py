"""From the text of a rule to a Boolean formula over predicates on typed attributes."""
