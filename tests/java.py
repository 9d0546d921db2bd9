"""How the JVMs of tests, and their sessions, are to work: each runs for a short time."""

from __future__ import annotations

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m -XX:+UseSerialGC"
"""Options of a JVM that runs much code a few times: quick compilation alone, with room for all that it compiles, and
no threads for garbage beside those that work."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings of a session that compiles no code for a query: of a few rows it would be compiled longer than it runs."""
WITHOUT_SUMS = {"spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs"}
"""Settings of sessions that write a commit of a Delta table as one file, not as two, a file of sums beside it: Hadoop
starts some ten processes for each of them, to set its mode and to read its link."""
PLANNED_ONCE = {"spark.sql.adaptive.enabled": "false"}
"""Settings of sessions that plan no query anew while it runs: with few rows that takes a third of the time, too."""
AS_IN_PRODUCTION = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""Settings of sessions that compile code for queries and plan them anew while they run, as sessions do elsewhere."""
