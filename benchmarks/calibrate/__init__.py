"""What the steps of the matching kernel cost, by which engines are chosen: measured, and fitted to whole matches."""
