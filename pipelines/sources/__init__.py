"""Sources: their columns, versions, and the files and rows that a micro-batch takes."""
