"""BE-Tree (Sadoghi and Jacobsen, SIGMOD 2011): Boolean expressions over a high-dimensional discrete space.

An expression is a box of region codes: a conjunction with one interval for each attribute that it names (Table 1).
"""
