"""Jobs on Delta tables, with or without Spark: one module for each verb, and packages for what the verbs share."""
