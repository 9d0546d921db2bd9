"""The verb `rules` on the command line: import, export, history and differences."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from deltatag.__main__ import main

STREAMS = {"s": {"source": "lake/source", "event_time": "t"}, "other": {"source": "lake/source"}}


def test_history_and_differences_on_the_command_line(
    new_workspace, add_rules, tmp_path: Path, capsys, monkeypatch
) -> None:
    workspace = new_workspace(STREAMS, {"time_zone": "Europe/Berlin"}, spark=False)
    rows = pl.DataFrame({"x": [1], "name": ["a"]}).with_columns(t=pl.datetime(2024, 1, 1, time_zone="UTC"))
    rows.write_delta(workspace.configuration.streams["s"].source)
    configuration = workspace.configuration.path
    configuration.write_text(
        '[lake]\nroot = "lake"\n[rules]\ntime_zone = "Europe/Berlin"\n[streams.s]\nsource = "lake/source"\n'
        'event_time = "t"\n[streams.other]\nsource = "lake/source"\n'
    )
    monkeypatch.setenv("DELTATAG_CONFIG", str(configuration))
    add_rules(workspace, ("a", "s", "x > 3"), ("b", "s", "x > 4"))
    path = tmp_path / "rules.yaml"
    path.write_text("- {rule_id: a, expression: x > 5}\n- {rule_id: bad, expression: x >}\n")
    assert main(["rules", "import", str(path), "--scope", "s", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["added"], told["changed"], told["removed"], told["version"]) == ([], ["a"], [], 2)
    assert (told["rejected"][0]["rule_id"], told["rejected"][0]["error"]) == ("bad", "SYNTAX")
    tagged = pl.DataFrame({"rule_ids": [["a"], ["a", "b"], []], "rules_version": [1, 2, 2]})
    tagged.write_delta(workspace.lake.uri("s_tagged"))
    workspace.lake.delta("rules").delete("rule_id = 'a'")
    assert main(["rules", "history", "a", "--json"]) == 0
    removed, changed, added = json.loads(capsys.readouterr().out)
    assert (removed["version"], removed["expression"]) == (3, None)
    assert (changed["version"], changed["expression"], changed["matches"]) == (2, "x > 5", 1)
    assert (added["version"], added["expression"], added["matches"]) == (1, "x > 3", 1)
    assert main(["rules", "diff", "1", "3", "--json"]) == 0
    assert [each["rule_id"] for each in json.loads(capsys.readouterr().out)["removed"]] == ["a"]
    assert main(["rules", "diff", "1", "2"]) == 0
    assert "~ a: expression: x > 3 -> x > 5" in capsys.readouterr().out
    assert main(["rules", "history", "a"]) == 0 and main(["rules", "export", str(tmp_path / "out.csv")]) == 0
    capsys.readouterr()
    assert main(["rules", "history", "B "]) == 1 and "did you mean 'b'?" in capsys.readouterr().err
    for text, reason in (("", "the file has no rules"), ("rule_id,expression\nbad,x >\n", "every rule is rejected")):
        (tmp_path / "in.csv").write_text(text)
        main(["rules", "import", str(tmp_path / "in.csv"), "--scope", "s"])
        assert f"Nothing was written: {reason}." in capsys.readouterr().out
    assert main(["rules", "diff", "1", "99"]) == 1
    assert main(["rules"]) == 2
    monkeypatch.delenv("DELTATAG_CONFIG")
    config = ["--config", str(configuration)]
    for options in (
        [*config, "rules", "export"], ["rules", *config, "export"], ["rules", "export", *config],
    ):  # fmt: skip
        assert main([*options, str(tmp_path / "out.yaml")]) == 0
    assert main(["rules", "import", "--help"]) == 0
