"""BE-Tree (Sadoghi and Jacobsen, SIGMOD 2011): Boolean expressions over a high-dimensional discrete space.

An expression is a box of region codes: a conjunction of one interval per attribute that it names (Table 1).
"""
