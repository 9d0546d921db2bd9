"""The size of the result of each allowed function, and its work, given its arguments.

One line for each kind of function: `result | work | names`. The words are defined in `sizes` and `steps`, each by a
function of the arguments. Sizes are bytes of values in memory; a step is about a nanosecond on one core. Both are upper
bounds, whatever a row contains, and never fall if an argument grows. A string can contain bytes that are not valid
UTF-8: if Spark converts it to a Java string, each of them becomes U+FFFD, three bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rules_index.language.costs.forms import Form, Size
from rules_index.language.costs.sizes import RESULTS, Call
from rules_index.language.costs.steps import WORK

COSTS = """
fixed      | pass     | abs acos acosh add_months ascii asin asinh atan atan2 atanh bigint bit_count bit_get bit_length
fixed      | pass     | boolean bround cbrt ceil ceiling char_length character_length chr char cos cosh cot csc date
fixed      | pass     | date_add date_diff date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart
fixed      | pass     | day dayname dayofmonth dayofweek dayofyear decimal degrees div double e exp expm1 extract
fixed      | pass     | factorial float floor from_utc_timestamp getbit hour hypot int is_variant_null isnan isnotnull
fixed      | pass     | isnull last_day len length ln log log10 log1p log2 luhn_check is_valid_utf8 make_date
fixed      | pass     | make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
fixed      | pass     | make_ym_interval minute mod month monthname months_between nanvl negative next_day octet_length
fixed      | pass     | pi pmod positive pow power quarter radians rint round sec second shiftleft shiftright
fixed      | pass     | shiftrightunsigned sign signum sin sinh smallint sqrt tan tanh time time_bucket time_diff
fixed      | pass     | time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_trunc
fixed      | pass     | time_to_seconds timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd
fixed      | pass     | timestampdiff tinyint to_utc_timestamp trunc try_add try_divide try_mod try_multiply
fixed      | pass     | try_subtract unix_date unix_micros unix_millis unix_seconds weekday weekofyear width_bucket year
fixed      | pass     | zeroifnull cardinality size array_size convert_timezone nullifzero try_make_interval
fixed      | raising  | try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
fixed      | raising  | to_date try_to_date to_timestamp to_timestamp_ltz try_to_timestamp to_timestamp_ntz to_time
fixed      | raising  | try_to_time unix_timestamp to_unix_timestamp to_number try_to_number
fixed      | read     | crc32 hash xxhash64 equal_null array_contains array_position map_contains_key
fixed      | read     | startswith endswith
fixed      | read     | vector_cosine_similarity vector_inner_product vector_l2_distance
fixed      | search   | instr locate position contains find_in_set
fixed      | distance | levenshtein
fixed      | match    | rlike regexp regexp_like like ilike regexp_count regexp_instr
fixed      | set      | arrays_overlap
fixed      | lambda   | exists forall
fixed      | parse    | json_array_length
short      | read     | md5 sha sha1 sha2 bin
short      | text     | conv
printed    | text     | format_number
dated      | text     | date_format from_unixtime to_char to_varchar
same       | text     | trim ltrim rtrim btrim
halved     | text     | unhex
same       | text     | soundex unbase64 reverse validate_utf8 try_validate_utf8 nullif
same       | text     | right
tripled    | text     | url_decode try_url_decode
tripled    | raising  | to_binary try_to_binary
tripled    | text     | upper ucase lower lcase initcap make_valid_utf8
hex        | text     | hex
base64     | text     | base64
quoted     | text     | quote
percent    | text     | url_encode
encoded    | text     | encode
wide       | letters  | translate mask
cut        | text     | left
cut-third  | text     | substring substr
tripled    | search   | split_part substring_index
tripled    | parse    | parse_url try_parse_url
tripled    | match    | regexp_extract regexp_substr
string     | text     | string
same       | text     | binary
total      | read     | overlay
decoded    | text     | decode
concat     | read     | concat
joined-ws  | read     | concat_ws
joined     | read     | array_join
formatted  | text     | format_string printf
replaced   | search   | replace
rewritten  | match    | regexp_replace
repeated   | read     | repeat
spaces     | read     | space
padded     | read     | lpad rpad
json       | print    | to_json
printed    | print    | schema_of_json schema_of_csv
json       | print    | to_csv
wide       | parse    | get_json_object
schema     | parse    | schema_of_variant
declared   | pass     | typeof
variant    | parse    | parse_json try_parse_json
json       | parse    | to_variant_object
fields     | parse    | from_json from_csv
typed      | parse    | variant_get try_variant_get
parts      | match    | split regexp_extract_all
parts      | parse    | json_object_keys
parts      | words    | sentences
either     | pass     | coalesce ifnull nvl elt if nvl2
either     | read     | greatest least
items      | read     | array
record     | read     | struct named_struct map
item       | read     | element_at try_element_at get
item       | sort     | array_max array_min
same-items | sort     | sort_array array_sort
same-items | set      | array_distinct
same-items | read     | array_compact array_remove
same-items | lambda   | filter
slice      | read     | slice
pushed     | read     | array_append array_prepend
inserted   | read     | array_insert
joined-set | set      | array_union
same-items | set      | array_intersect array_except
zipped     | read     | arrays_zip
flat       | read     | flatten
entries    | build    | map_entries
same-items | read     | map_keys map_values
copies     | read     | array_repeat
range      | read     | sequence
mapped     | lambda   | transform
last       | lambda   | aggregate reduce
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a function: the size of its result, and its own work."""

    result: Callable[[Call], Size]
    work: Callable[[Call, Size], Form]


def _read_table() -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    for line in COSTS.strip().splitlines():
        result, work, names = (part.strip() for part in line.split("|"))
        for name in names.split():
            costs[name] = Cost(RESULTS[result], WORK[work])
    return costs


BY_NAME: dict[str, Cost] = _read_table()
"""The cost of each allowed function, by its lower-case name."""

TIMES: dict[str, Callable[[int, int], int]] = {
    "nullif": lambda index, count: 2 if index == 0 else 1,
    "nullifzero": lambda index, count: 2,
    "regexp_substr": lambda index, count: 2,
    "decode": lambda index, count: max(1, (count - 1) // 2) if index == 0 else 1,
}
"""How often Spark copies an argument (given its index and the number of arguments) during planning; once if the
function is absent."""
