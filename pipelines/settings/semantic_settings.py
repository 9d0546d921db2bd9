"""The settings of a Spark session that decide what a rule's expression means."""

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
"""Settings to which deltatag gives a value that no configuration can change.

`pushVariantIntoScan` is off: otherwise scans would evaluate casts of parts of a VARIANT, where errors end the job.
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
"""Settings that always have Spark's default, even if the running session was started with other values."""
_BY_LOWER = {name.lower(): name for name in (*SEMANTIC_SETTINGS, TIME_ZONE)}


def canonical_name(name: str) -> str | None:
    """The proper name of a semantic setting that is given in any case; None for any other setting.

    Names of settings are case-sensitive in Spark, so a name in another case would have no effect.
    """
    bare = name.strip()
    return _BY_LOWER.get(bare.lower()) or (bare if _DEFAULTS.fullmatch(bare) else None)
