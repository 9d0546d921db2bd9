"""The settings of a Spark session that decide what a rule's text means."""

from __future__ import annotations

import re

TIME_ZONE = "spark.sql.session.timeZone"
SEMANTIC_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.variable.substitute": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.variant.pushVariantIntoScan": "false",
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
}
"""Settings that deltatag gives a value; nobody's configuration changes it.

`pushVariantIntoScan` has the scan evaluate casts of a VARIANT's parts, where an error ends the job.
"""
_DEFAULTS = re.compile(
    r"""spark\.sql\.(
        (ansi|collation|function|functionResolution|icu|jsonGenerator|path)\..* | defaultPath
        | parser\.(?!manageParserCaches|parserDfaCache).*
        | legacy\.(?!parquet\.|avro\.|orc\.|replaceDatabricksSparkAvro|statisticalAggregate|viewSchema).*
        | analyzer\.(singlePassResolver|sqlFunctionResolution|preferColumnOverLcaInArrayIndex).*
        | csv\.parser\..* | json\.(enable|useUnsafeRow).* | xml\.variant\..* | columnNameOfCorruptRecord
        | variant\.(allowDuplicateKeys|validateUnicodeInJsonParsing)
        | (types\.framework|timeType|geospatial)\.enabled
        | allowNamedFunctionArguments | binaryOutputStyle | charAsVarchar | preserveCharVarcharTypeInfo
        | readSideCharPadding | chunkBase64String\.enabled | decimalOperations\.allowPrecisionLoss | mapKeyDedupPolicy
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""Settings that stay as Spark has them by default, whatever the session that runs was started with."""
_BY_LOWER = {name.lower(): name for name in (*SEMANTIC_SETTINGS, TIME_ZONE)}


def meant(name: str) -> str | None:
    """The name of the semantic setting that `name` is, in whatever case it is written; None for any other setting.

    Spark tells apart names that differ in case, so that one in another case would do nothing.
    """
    bare = name.strip()
    return _BY_LOWER.get(bare.lower()) or (bare if _DEFAULTS.fullmatch(bare) else None)
