"""How the JVMs of tests are to work: each runs for a short time."""

from __future__ import annotations

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m -XX:+UseSerialGC"
"""Options of a JVM that runs much code a few times: quick compilation alone, with room for all that it compiles, and
no threads for garbage beside those that work."""
