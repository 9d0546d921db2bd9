"""What goes on when a predicate, or a JVM, ends in the middle of a micro-batch."""
