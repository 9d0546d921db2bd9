"""Sources: their columns, their versions, and the files and rows that a micro-batch takes."""
