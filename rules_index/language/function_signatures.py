"""The functions of Spark SQL that a rule may call (number of arguments, type of the result), and those it may not.

A function is allowed if it returns the same value for the same row whenever and wherever it is evaluated, and reads
nothing but its arguments. All others are refused, with the reason:

- aggregates, window functions and generators of rows: a rule sees a single row;
- the clock, random numbers, the session, its user and catalog, the position of a row in its file;
- Java reflection, functions that raise on purpose, encryption with a random start, sketches, XML and XPath (they parse
  documents that may name other documents), AI, HTTP and secret functions, user-defined functions;
- a call that can need too much memory or time on a row is refused by its bounds (`costs`), not by its name.
"""

from __future__ import annotations

from dataclasses import dataclass

from rules_index.language.tokens import words


@dataclass(frozen=True, slots=True)
class Function:
    """An allowed function: the least and greatest number of arguments, and the rule for its result's type
    (`results.py`)."""

    name: str
    least: int
    most: int
    result: str


MANY = 1 << 20

_ALLOWED = """
string 1 1 | upper ucase lower lcase initcap soundex md5 sha sha1 quote hex base64 bin monthname dayname
string 1 1 | chr char url_encode url_decode try_url_decode typeof
string 1 2 | trim ltrim rtrim btrim to_json to_csv from_unixtime validate_utf8 make_valid_utf8 try_validate_utf8
string 2 2 | date_format to_varchar get_json_object format_number to_char sha2
string 3 3 | split_part substring_index translate conv
string 2 3 | replace
string 1 5 | mask
string 1 many | concat_ws format_string printf
string 2 3 | regexp_extract regexp_substr
string 3 4 | regexp_replace
string 1 4 | parse_url try_parse_url
text 1 1 | reverse
text 2 2 | left right
text 2 3 | substring substr lpad rpad
text 3 4 | overlay
text 2 2 | repeat
string 1 1 | space string
int 1 1 | length char_length character_length len octet_length bit_length ascii bit_count
int 1 1 | size cardinality array_size json_array_length int
int 2 2 | instr find_in_set regexp_count
int 2 3 | locate position regexp_instr levenshtein
int 1 1 | year month day dayofmonth dayofyear dayofweek weekday weekofyear quarter hour minute second unix_date
int 2 2 | datediff date_diff
int 1 many | hash
bigint 1 many | xxhash64
bigint 1 1 | crc32 factorial unix_seconds unix_millis unix_micros bigint
bigint 1 2 | unix_timestamp to_unix_timestamp
bigint 2 2 | array_position
bigint 3 3 | timestampdiff
bigint 4 4 | width_bucket
tinyint 1 1 | tinyint
tinyint 2 2 | bit_get getbit
smallint 1 1 | smallint
boolean 1 1 | isnull isnotnull isnan is_valid_utf8 is_variant_null luhn_check boolean
boolean 2 2 | startswith endswith contains array_contains map_contains_key arrays_overlap equal_null
boolean 2 2 | rlike regexp regexp_like exists forall
boolean 2 3 | like ilike
double 1 1 | sqrt cbrt exp expm1 ln log2 log10 log1p sin cos tan cot sec csc asin acos atan sinh cosh tanh
double 1 1 | asinh acosh atanh degrees radians rint sign signum double
double 2 2 | atan2 pow power hypot
double 1 2 | log
double 0 0 | pi e
double 2 3 | months_between
date 1 1 | last_day date_from_unix_date date
date 1 2 | to_date try_to_date
date 2 2 | add_months next_day trunc date_add date_sub
date 3 3 | make_date
timestamp 1 1 | timestamp timestamp_seconds timestamp_millis timestamp_micros
timestamp 1 2 | to_timestamp to_timestamp_ltz try_to_timestamp
timestamp 2 2 | from_utc_timestamp to_utc_timestamp
ntz 1 2 | to_timestamp_ntz
unknown 2 2 | date_trunc
unknown 2 7 | make_timestamp make_timestamp_ltz make_timestamp_ntz
unknown 2 7 | try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
unknown 2 3 | convert_timezone
unknown 2 2 | extract date_part datepart dateadd
unknown 3 3 | timestampadd
interval 0 4 | make_dt_interval
months 0 2 | make_ym_interval
unknown 0 7 | make_interval try_make_interval
unknown 2 3 | time_bucket
unknown 1 3 | to_time try_to_time make_time time_diff time_trunc
unknown 1 1 | time_from_seconds time_from_millis time_from_micros time_to_seconds time_to_millis time_to_micros time
binary 1 1 | unhex unbase64 binary
binary 2 2 | encode
binary 1 2 | to_binary try_to_binary
unknown 2 many | decode
number 1 1 | abs negative positive
whole 1 2 | ceil ceiling floor
rounded 1 2 | round bround
unknown 2 2 | mod pmod try_add try_subtract try_multiply try_divide try_mod div
shift 2 2 | shiftleft shiftright shiftrightunsigned
first 2 2 | nullif
first 1 1 | nullifzero
or-zero 1 1 | zeroifnull
common 1 many | coalesce
common 2 2 | ifnull nvl
common 2 many | greatest least
common-from-2 3 3 | if nvl2
fraction 2 2 | nanvl
unknown 2 many | elt
unknown 2 2 | to_number try_to_number
concat 0 many | concat
array 0 many | array
unknown 0 many | map named_struct struct
item 2 2 | element_at try_element_at get
item 1 1 | array_max array_min
first 1 1 | array_distinct array_compact
first 1 2 | sort_array array_sort
first 2 2 | array_append array_prepend array_remove filter
first 3 3 | slice
unknown 2 2 | array_union array_intersect array_except transform
unknown 3 3 | array_insert
unknown 1 many | arrays_zip
unknown 1 1 | flatten map_entries
string 2 3 | array_join
keys 1 1 | map_keys
values 1 1 | map_values
unknown 2 2 | array_repeat
unknown 2 3 | sequence
strings 2 3 | split
strings 2 3 | regexp_extract_all
strings 1 1 | json_object_keys
unknown 1 3 | sentences
aggregate 3 4 | aggregate reduce
unknown 2 3 | from_json from_csv
string 1 2 | schema_of_json schema_of_csv
unknown 1 1 | parse_json try_parse_json to_variant_object
unknown 3 3 | variant_get try_variant_get
string 1 1 | schema_of_variant
float 1 1 | float
float 2 2 | vector_cosine_similarity vector_inner_product vector_l2_distance
unknown 1 1 | decimal
"""
"""One line for each kind of function: `result least most | names`, the fields of `Function`."""

AGGREGATES = words("""
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
    collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean
    measure median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std
    stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum""")
WINDOWS = words("""
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number session_window window
    window_time""")
TABLES = words("""
    collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer
    python_worker_logs range sql_keywords stack variant_explode variant_explode_outer""")
NOT_REPEATABLE = words("""
    aes_encrypt curdate current_catalog current_database current_date current_path current_schema current_time
    current_timestamp current_timezone current_user input_file_block_length input_file_block_start input_file_name
    localtimestamp monotonically_increasing_id now rand randn random randstr session_user shuffle spark_partition_id
    uniform user uuid version""")
MAKE_MAPS = words("map_concat map_from_arrays map_from_entries str_to_map")
"""Functions that raise an error on a repeated or a NULL key. Spark keeps the keys that it has read before the error,
and counts them among the keys of the next row."""
NOT_ALLOWED = words("""
    aes_decrypt approx_top_k_estimate assert_true bitmap_bit_position bitmap_bucket_number bitmap_count collate
    collation from_avro from_protobuf from_xml hll_sketch_estimate hll_union identifier java_method raise_error reflect
    schema_of_avro schema_of_xml st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid theta_difference
    theta_intersection theta_sketch_estimate theta_union to_avro to_protobuf to_xml try_aes_decrypt try_reflect
    vector_norm vector_normalize xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number
    xpath_short xpath_string kll_sketch_get_n_bigint interval""")


def _read() -> dict[str, Function]:
    functions = {}
    for line in _ALLOWED.strip().splitlines():
        rule, names = line.split("|")
        result, least, most = rule.split()
        for name in names.split():
            functions[name] = Function(name, int(least), MANY if most == "many" else int(most), result)
    return functions


FUNCTIONS: dict[str, Function] = _read()
"""Every allowed function by its lower-case name."""

NAMED_ARGUMENTS = words("mask")
"""Functions whose arguments may be named, like `mask(s, upperChar => 'Q')`."""

LAMBDAS = {
    "exists": (1,),
    "forall": (1,),
    "filter": (1,),
    "transform": (1,),
    "aggregate": (2, 3),
    "reduce": (2, 3),
}
"""Functions that take lambdas, with the indices of the arguments that are lambdas."""

PATTERN_ARGUMENT = {
    "regexp_extract": 1,
    "regexp_extract_all": 1,
    "regexp_replace": 1,
    "regexp_substr": 1,
    "regexp_count": 1,
    "regexp_instr": 1,
    "split": 1,
}
"""The index of the argument that Spark matches as a Java regular expression."""

PLAIN_NAMES = frozenset(
    (
        "current_date",
        "current_timestamp",
        "current_time",
        "current_user",
        "user",
        "session_user",
        "localtimestamp",
        "current_catalog",
        "current_database",
        "current_schema",
        "curdate",
    )
)
"""Names that are a function call even without brackets, unless there is a column of that name."""
