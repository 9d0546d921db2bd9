"""R-tree and R*-tree over boxes, and the evaluation of disjunctive predicates with and without them."""
