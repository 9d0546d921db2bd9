"""The index that is stored: its arrays, how they are planned, laid out, validated and matched."""
