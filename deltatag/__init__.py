"""The command line, and nothing else."""
