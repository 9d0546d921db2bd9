"""The stored index: its arrays, and how they are planned, laid out, validated and matched."""
