"""The command line; it only parses arguments, calls verbs and prints results."""
