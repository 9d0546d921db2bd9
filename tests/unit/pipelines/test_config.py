"""deltatag.toml: what is accepted, and which mistake is reported at which key."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import ConfigurationError
from pipelines.settings.configuration import load_configuration
from pipelines.settings.model import Start
from pipelines.settings.section import parse_duration, parse_size

MINIMAL = '[lake]\nroot = "lake"\n'
STREAM = MINIMAL + '[streams.flights]\nsource = "lake/flights"\n'
PAIR = STREAM + 'event_time = "t"\n[streams.weather]\nsource = "lake/weather"\nevent_time = "t"\n'
JOIN = PAIR + '[joins.j]\nstreams = ["flights", "weather"]\non = ["o"]\n'
LATENESS, LABELS = 'window = "1 s"\nlateness = "1 s"\n', 'window = "1 s"\nannotations = ["labels"]\n'


def load(folder: Path, text: str):
    path = folder / "deltatag.toml"
    path.write_text(text)
    return load_configuration(path)


def test_every_key_of_the_contract_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "here")
    found = load(
        tmp_path,
        """
        [lake]
        root = "${LAKE}/lake"
        pages_url = "https://pages.example:3001/lake"
        [spark]
        "spark.sql.shuffle.partitions" = 8
        [rules]
        time_zone = "America/New_York"
        on_reject = "hold"
        max_reject_share = 0.1
        [streams.flights]
        source = "lake/flights"
        start = 12
        key = ["flight_id"]
        event_time = "departed_at"
        max_bytes_per_batch = "512m"
        output = "matched"
        matches = false
        cluster_by = ["origin"]
        checks = { sane_delay = "dep_delay > -120" }
        max_quarantine_share = 0.5
        [streams.weather]
        source = "s3://bucket/weather"
        event_time = "time_hour"
        [joins.flights_weather]
        streams = ["flights", "weather"]
        on = { flights = ["origin"], weather = ["station"] }
        window = { flights = "0 s", weather = "3 hours" }
        """,
    )
    assert found.lake.root == str(tmp_path / "here" / "lake")
    assert found.lake.pages_url == "https://pages.example:3001/lake"
    assert found.spark == {"spark.sql.shuffle.partitions": "8"}
    assert (found.rules.time_zone, found.rules.on_reject, found.rules.max_reject_share) == (
        "America/New_York",
        "hold",
        0.1,
    )
    flights = found.streams["flights"]
    assert flights.source == str(tmp_path / "lake" / "flights")
    assert flights.start == Start("version", 12)
    assert (flights.key, flights.event_time, flights.max_bytes_per_batch) == (("flight_id",), "departed_at", 512 << 20)
    assert (flights.output, flights.keeps_matches, flights.cluster_by) == ("matched", False, ("origin",))
    assert flights.checks == {"sane_delay": "dep_delay > -120"}
    assert flights.max_quarantine_share == 0.5
    assert found.streams["weather"].source == "s3://bucket/weather"
    join = found.joins["flights_weather"]
    assert join.on == {"flights": ("origin",), "weather": ("station",)}
    assert join.window == {"flights": 0, "weather": 3 * 3600 * 10**6}


def test_defaults(tmp_path: Path) -> None:
    flights = load(tmp_path, STREAM).streams["flights"]
    assert flights.start == Start("earliest")
    assert flights.max_bytes_per_batch == 1 << 30
    assert (flights.output, flights.matches, flights.max_quarantine_share) == ("all", True, 1.0)
    assert not flights.keeps_matches  # without a key there is nothing that names a row
    assert not flights.can_quarantine


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"earliest"', Start("earliest")),
        ("0", Start("version", 0)),
        ('"7"', Start("version", 7)),
        ("2024-03-01T00:00:00Z", Start("timestamp", 1_709_251_200_000_000)),
        ("2024-03-01T01:00:00+01:00", Start("timestamp", 1_709_251_200_000_000)),
        ('"2024-03-01"', Start("timestamp", 1_709_251_200_000_000)),
        ('"2024-03-01 00:00:00"', Start("timestamp", 1_709_251_200_000_000)),
    ],
)
def test_start(tmp_path: Path, text: str, expected: Start) -> None:
    assert load(tmp_path, f"{STREAM}start = {text}\n").streams["flights"].start == expected


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("[lake", "deltatag.toml", "not valid TOML"),
        ("", "[lake] root", "either root or catalog"),
        ('[lake]\nroot = "a"\ncatalog = "b"', "[lake] root", "either root or catalog"),
        (MINIMAL + "[lakes]\n", "lakes", "no such key"),
        (MINIMAL + '[rules]\ntime_zone = "Mars/Olympus"', "[rules] time_zone", "no time zone"),
        (MINIMAL + '[rules]\ntime_zone = "localtime"', "[rules] time_zone", "like Europe/Berlin"),
        (MINIMAL + '[rules]\ntime_zone = "right/Europe/Berlin"', "[rules] time_zone", "like Europe/Berlin"),
        (MINIMAL + '[spark]\n"spark.sql.ansi.enabled" = false', "[spark] spark.sql.ansi.enabled", 'always "true"'),
        (MINIMAL + '[spark]\n"spark.sql.session.timeZone" = "UTC"', "[spark] spark.sql.session.timeZone", "[rules]"),
        (MINIMAL + '[spark]\n"spark.sql.ANSI.enabled" = false', "[spark] spark.sql.ANSI.enabled", 'always "true"'),
        (MINIMAL + '[spark]\n"spark.sql.ANSI.enabled" = true', "[spark] spark.sql.ANSI.enabled", "Leave it out"),
        (MINIMAL + '[spark]\n"SPARK.sql.ansi.enabled" = false', "[spark] SPARK.sql.ansi.enabled", "begin with spark."),
        (MINIMAL + '[spark]\n"spark.sql.Session.timezone" = "UTC"', "[spark] spark.sql.Session.timezone", "[rules]"),
        (MINIMAL + '[spark]\n"spark.sql.mapkeyDedupPolicy" = "LAST_WIN"', "mapkeyDedupPolicy", "by default"),
        (MINIMAL + '[spark]\n"spark.sql.legacy.sizeOfNull" = true', "spark.sql.legacy.sizeOfNull", "by default"),
        (
            MINIMAL + "[spark]\n[spark.spark.sql.Parser]\nescapedStringLiterals = true",
            "escapedStringLiterals",
            '"false"',
        ),
        (MINIMAL + '[spark]\ndriver_memory = "1g"', "[spark] driver_memory", "begin with spark."),
        (MINIMAL + '[spark]\n"spark.jars" = ["a", "b"]', "[spark] spark.jars", "one value"),
        (MINIMAL + '[rules]\non_reject = "keep"', "[rules] on_reject", "drop, hold"),
        (MINIMAL + "[rules]\nmax_reject_share = 2", "[rules] max_reject_share", "from 0 to 1"),
        (MINIMAL + "[streams.a]\n", "[streams.a] source", "missing"),
        (MINIMAL + f'[streams.{"a" * 201}]\nsource = "b"', "[streams.aaa", "at most 200 characters"),
        (STREAM + "sorce = 1\n", "[streams.flights] sorce", "no such key"),
        (STREAM + 'start = "soon"\n', "[streams.flights] start", "earliest"),
        (STREAM + "start = -1\n", "[streams.flights] start", "earliest"),
        (STREAM + 'max_bytes_per_batch = "1 parsec"\n', "[streams.flights] max_bytes_per_batch", "a size"),
        (STREAM + "max_bytes_per_batch = 0\n", "[streams.flights] max_bytes_per_batch", "above zero"),
        (STREAM + 'key = "id"\n', "[streams.flights] key", "a list"),
        (STREAM + 'key = ["id", "ID"]\n', "[streams.flights] key", "twice"),
        (STREAM + "matches = 1\n", "[streams.flights] matches", "true or false"),
        (STREAM + "checks = { a = 1 }\n", "[streams.flights] checks.a", "a condition"),
        (STREAM + 'key = ["rule_id"]\n', "[streams.flights] key", "named like one that deltatag adds"),
        (STREAM + 'source2 = "${NOT_SET_ANYWHERE}"\n', "streams.flights.source2", "NOT_SET_ANYWHERE is not set"),
        (MINIMAL + 'pages_url = "localhost:3001"\n', "[lake] pages_url", "expected an address"),
        (MINIMAL + '[streams.rules]\nsource = "x"\n', "[streams.rules]", "already taken"),
        (STREAM + '[streams.flights_tagged]\nsource = "x"\n', "[streams.flights_tagged]", "already taken"),
        (MINIMAL + '[streams."a b"]\nsource = "x"\n', "[streams.a b]", "letters, digits"),
        (PAIR + '[joins.j]\nstreams = ["flights"]\n', "[joins.j] streams", "two to 6"),
        (PAIR + '[joins.j]\nstreams = ["flights", "snow"]\n', "[joins.j] streams", "no stream 'snow'"),
        (PAIR + '[joins.j]\nstreams = ["flights", "weather"]\nwindow = "1 h"\n', "[joins.j] on", "number of key"),
        (JOIN + 'window = "1 s"\nmethod = "naive"\n', "[joins.j] method", "one of batch, pdfa, found 'naive'"),
        (JOIN + 'window = "1 moon"\n', "[joins.j] window", "us, ms, s"),
        (JOIN.replace("weather", "Tagged_at") + 'window = "1 s"\n', "[joins.j] streams", "a column tagged_at"),
        (JOIN.replace("weather", "batch") + LATENESS, "[joins.j] streams", "a column batch"),
        (JOIN.replace("weather", "labels") + LABELS, "[joins.j] streams", "a column labels"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(tmp_path: Path, text: str, where: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, text)
    message = str(raised.value)
    assert "deltatag.toml" in message
    assert where in message
    assert what in message


A = MINIMAL + '[streams.a]\nsource = "x"\n'
B = '[streams.b]\nsource_stream = "a"\n'


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[lake]\nroot = "a%20b"\n', "[lake] root"),
        (MINIMAL + '[streams.s]\nsource = "a%2fb/c"\n', "[streams.s] source"),
        (MINIMAL + '[lists.l]\nsource = "a%C3/b"\n', "[lists.l] source"),
        ('[lake]\nroot = "run #1"\n', "[lake] root"),
        (MINIMAL + '[streams.s]\nsource = "which?/c"\n', "[streams.s] source"),
        (MINIMAL + "[streams.s]\nsource = 'a\\b'\n", "[streams.s] source"),
        (MINIMAL + '[lists.l]\nsource = "a\\tb"\n', "[lists.l] source"),
    ],
)
def test_a_folder_that_delta_rs_takes_for_another_is_refused(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(ConfigurationError, match="rename that folder") as told:
        load(tmp_path, text)
    assert where in str(told.value)
    assert load(tmp_path, MINIMAL + '[streams.s]\nsource = "100%/a"\n').streams["s"].source.endswith("100%/a")


@pytest.mark.parametrize("name", ["[old]", "a^b", "a|b"])
def test_a_folder_that_delta_rs_cannot_write_to_is_only_read(tmp_path: Path, name: str) -> None:
    for text in (f'[lake]\nroot = "{name}/lake"\n', MINIMAL + f'[lists.l]\nsource = "{name}"\n'):
        with pytest.raises(ConfigurationError, match="cannot write"):
            load(tmp_path, text)
    assert load(tmp_path, MINIMAL + f'[streams.s]\nsource = "{name}"\n').streams["s"].source.endswith(name)


@pytest.mark.parametrize("source", ["~nobody-of-this-name/rows", "loop/rows", f"a.{'b' * 300}"])
def test_a_path_that_cannot_exist_is_a_path(tmp_path: Path, source: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert load(tmp_path, MINIMAL + f'[streams.s]\nsource = "{source}"\n').streams["s"].source.endswith(source)


def test_a_stream_may_read_what_another_one_has_tagged_and_stands_behind_it(tmp_path: Path) -> None:
    middle = B + 'key = ["ID", "other"]\noutput = "matched"\nchecks = { positive = "x > 0 ", even = "x % 2 = 0" }\n'
    first = '[streams.c]\nsource_stream = "b"\noutput = "matched"\nkey = ["id", "other"]\n'
    first += 'checks = { even = "x % 2 = 0", some = "x > 0" }\n'
    last = 'output = "matched"\nkey = ["id"]\nchecks = { sane = "x > 0" }\n'
    found = load(tmp_path, MINIMAL + first + middle + A.removeprefix(MINIMAL) + last)
    assert list(found.streams) == ["a", "b", "c"]
    assert found.streams["a"].source_stream is None
    assert (found.streams["b"].source_stream, found.streams["c"].source_stream) == ("a", "b")
    assert found.streams["b"].source == str(tmp_path / "lake" / "a_tagged")
    assert found.streams["c"].source == str(tmp_path / "lake" / "b_tagged")
    assert load(tmp_path, A + B).streams["b"].output == "all"
    cataloged = load(tmp_path, (A + B).replace('root = "lake"', 'catalog = "main.deltatag"'))
    assert cataloged.streams["b"].source == "main.deltatag.a_tagged"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (A + B + 'source = "x"\n', "[streams.b] source_stream", "either source or source_stream"),
        (A + B.replace('"a"', '"d"'), "[streams.b] source_stream", "no stream 'd'"),
        (A + B.replace('"a"', '"b"'), "[streams.b] source_stream", "in a circle"),
        (A + B.replace('"a"', '"c"') + '[streams.c]\nsource_stream = "b"\n', "source_stream", "in a circle"),
        (A + 'output = "matched"\n' + B, "[streams.b] output", 'write output = "matched" here'),
        (A + 'key = ["id"]\n' + B + 'key = ["k"]\n', "[streams.b] key", 'write key = ["k", "id"]'),
        (A + 'checks = { sane = "x > 0" }\n' + B, "[streams.b] checks", 'add sane = "x > 0" to the checks'),
        (
            A + 'checks = { sane = "x > 0" }\n' + B + 'checks = { sane = "x > 1" }\n',
            "[streams.b] checks",
            'add sane = "x > 0" to the checks',
        ),
        (
            PAIR + '[streams.some]\nsource_stream = "flights"\nevent_time = "t"\n'
            '[joins.j]\nstreams = ["some", "weather"]\non = ["o"]\nwindow = "1 h"\n',
            "[joins.j] streams",
            "join flights, or give some a source",
        ),
    ],
)
def test_what_a_stream_cannot_read_of_another_one_is_refused(tmp_path: Path, text: str, where: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, text)
    assert where in str(raised.value) and what in str(raised.value)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="deltatag init"):
        load_configuration(tmp_path / "deltatag.toml")


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("0 s", 0),
        ("5us", 5),
        ("7 ms", 7_000),
        ("15min", 900_000_000),
        ("1 hour", 3_600_000_000),
        ("3 hours", 10_800_000_000),
        ("2 Days", 172_800_000_000),
        ("1 minute", 60_000_000),
        ("4 microseconds", 4),
    ],
)
def test_durations(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize("text", ["", "1", "hour", "-1 s", "1.5 h", "1 fortnight", None, 5])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="integer"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "size"), [(5, 5), ("5", 5), ("1k", 1024), ("1g", 1 << 30), ("2 GiB", 2 << 30)])
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ('[lake]\nrot = "lake"\n', "did you mean 'root'?"),
        (MINIMAL + '[streams.flights]\nsorce = "lake/flights"\n', "did you mean 'source'?"),
        (MINIMAL + '[stream.flights]\nsource = "lake/flights"\n', "did you mean 'streams'?"),
        (MINIMAL + '[rules]\ntimezone = "UTC"\n', "did you mean 'time_zone'?"),
        (MINIMAL + '[rules]\nON_REJECT = "drop"\n', "did you mean 'on_reject'?"),
        (MINIMAL + "[rules]\nnonsense = 1\n", r"no such key\. Known here: time_zone, on_reject, "),
        (PAIR + '[joins.j]\nstream = ["flights", "weather"]\n', "did you mean 'streams'?"),
    ],
)
def test_a_typo_of_a_key_names_the_nearest(tmp_path: Path, text: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match=nearest.replace("?", r"\?")):
        load(tmp_path, text)


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "content",
    [
        b'[lake]\nroot = "a\\u0000b"\n',
        b'[lake]\nroot = "a\0b"\n',
        MINIMAL.encode() + b"x = " + b"[" * 5000 + b"]" * 5000,
        MINIMAL.encode() + b"x = " + b"{a = " * 5000 + b"1" + b"}" * 5000,
        MINIMAL.encode() + b"[" + b"a." * 5000 + b"b]\nx = 1\n",
        MINIMAL.encode("utf-16"),
        b"\xff\xfe\x00",
        STREAM.encode() + b"start = " + DIGITS.encode(),
        STREAM.encode() + b'start = "' + DIGITS.encode() + b'"',
        STREAM.encode() + b'max_bytes_per_batch = "' + DIGITS.encode() + b't"',
        STREAM.encode() + b'max_bytes_per_batch = "99999999999999999999t"',
        STREAM.encode() + b'checks = { "a" = "b\\u0000" }\nkey = ["\\u0000"]\nsource_stream = "\\u0000"\n',
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "deltatag.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"deltatag\.toml") as refused:
        load_configuration(path)
    assert len(str(refused.value)) < 400 + len(str(path))


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "deltatag.toml").write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert load_configuration(tmp_path).lake.root == str(tmp_path / "lake")


@pytest.mark.parametrize("name", ["none", "a\0b"])
def test_a_configuration_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="no such configuration file"):
        load_configuration(tmp_path / name)


SELF = {
    "path": "lake/flights_tagged",
    "slash": "lake//flights_tagged/",
    "dots": "lake/x/../flights_tagged",
    "uri": "file:{folder}/lake/flights_tagged",
    "uri of three slashes": "file://{folder}/lake/flights%5Ftagged",
    "link": "link/flights_tagged",
    "matches": "lake/flights_matches",
    "quarantine": "lake/quarantine_flights",
    "join": "lake/both_tagged",
    "another stream's": "lake/weather_tagged",
}


@pytest.mark.parametrize("source", SELF)
def test_a_stream_does_not_read_what_is_made_of_it(tmp_path: Path, source: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    place = SELF[source].format(folder=tmp_path)
    text = MINIMAL + f'[streams.flights]\nsource = "{place}"\nevent_time = "t"\n'
    text += '[streams.weather]\nsource = "lake/flights_tagged"\nevent_time = "t"\n'
    text += '[joins.both]\nstreams = ["flights", "weather"]\non = ["k"]\nwindow = "1 h"\n'
    with pytest.raises(ConfigurationError, match=r"\[streams.flights\] source: .* of flights itself"):
        load(tmp_path, text)
    load(tmp_path, text.replace(f'"{place}"', '"lake/flights"'))


@pytest.mark.parametrize("source", ["main.tags.s_tagged", "MAIN.Tags.s_tagged"])
def test_a_stream_does_not_read_what_a_catalog_has_of_it(tmp_path: Path, source: str) -> None:
    text = f'[lake]\ncatalog = "main.tags"\n[streams.s]\nsource = "{source}"\n'
    with pytest.raises(ConfigurationError, match="of s itself"):
        load(tmp_path, text)
    load(tmp_path, text.replace("s_tagged", "other"))


@pytest.mark.parametrize(
    "text",
    [
        "100000000000000000000 days",
        "99999999999999999999 days",
        "3652501 days",
        "9" * 5000 + " us",
        "999999999999999999 min",
    ],
)
def test_durations_that_no_event_time_can_take_are_refused(tmp_path: Path, text: str) -> None:
    join = f'[joins.both]\nstreams = ["flights", "weather"]\non = ["k"]\nwindow = "{text}"\n'
    with pytest.raises(ConfigurationError, match="10,000 years"):
        load(tmp_path, PAIR + join)
    assert parse_duration("3652500 days") == 3_652_500 * 86_400_000_000


@pytest.mark.parametrize("start", [1 << 63, f'"{1 << 63}"', f'"{"9" * 5000}"'])
def test_a_start_is_a_version_that_a_table_can_have(tmp_path: Path, start) -> None:
    with pytest.raises(ConfigurationError, match="start"):
        load(tmp_path, STREAM + f"start = {start}\n")
