"""Rules over joined rows: of batches of several streams' rows at once, and row by row as the paper does (`pdfa`)."""
