"""The documents say what the code says: what can be derived is compared, what can be run is run."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deltatag.arguments import parser
from pipelines.settings.configuration import parse_configuration
from pipelines.settings.model import Join, LakeSettings, ListTable, RulesSettings, Stream

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


def cases(language: str) -> list[object]:
    """Every code block of a language in the documents, as test parameters."""
    return [
        pytest.param(block, id=f"{document.name}-{number}")
        for document in DOCUMENTS
        for number, block in enumerate(blocks(document, language), 1)
    ]


def test_generated_parts_are_current() -> None:
    run = subprocess.run(
        [sys.executable, "tools/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (document.parent / target).exists()]
    assert missing == []


def test_every_document_is_named_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in DOCUMENTS[2:] if f"docs/{path.name}" not in text] == []


@pytest.mark.parametrize(
    "section", [LakeSettings, RulesSettings, Stream, Join, ListTable], ids=lambda kind: kind.__name__
)
def test_every_key_of_the_configuration_is_described(section: type) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    keys = [each.name for each in dataclasses.fields(section) if each.name != "name" and each.metadata.get("key", True)]
    assert [key for key in keys if f"| `{key}` |" not in text] == []


def test_every_refusal_is_described() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in [*(ROOT / "rules_index").rglob("*.py"), ROOT / "pipelines" / "rule_set.py"]
    )
    raised = {
        *re.findall(r'(?:RuleError|\.error)\(\s*"([A-Z_]{5,})"', code),
        *re.findall(r'"([A-Z_]{5,})": pl\.', code),
    }
    text = (ROOT / "docs" / "rule-language.md").read_text(encoding="utf-8")
    assert len(raised) > 15
    assert sorted(error for error in raised if f"`{error}`" not in text) == []


def commands() -> list[tuple[str, ...]]:
    """The arguments of every call of deltatag in a shell block."""
    found = set()
    for document in DOCUMENTS:
        for block in blocks(document, "sh"):
            call = ""
            for line in block.replace("\\\n", " ").splitlines():
                call = f"{call}\n{line}" if call else line
                if not re.match(r"\s*(\S*/)?deltatag ", call):
                    call = ""
                    continue
                try:
                    words = shlex.split(call, comments=True)
                except ValueError:  # a quoted text goes on in the next line
                    continue
                end = next((i for i, word in enumerate(words) if word in ("&&", "||", "|", ">", ">>")), len(words))
                found.add(tuple(words[1:end]))
                call = ""
            assert not call, f"{document.name}: {call}"
    return sorted(found)


@pytest.mark.parametrize("command", commands(), ids=lambda words: " ".join(words)[:40].replace("\n", " "))
def test_commands_are_understood(command: tuple[str, ...]) -> None:
    parser().parse_args(command)


@pytest.mark.parametrize("block", cases("toml"))
def test_configurations_are_accepted(block: str, tmp_path: Path) -> None:
    document = {"lake": {"root": "lake"}, **tomllib.loads(block)}
    assert parse_configuration(document, tmp_path / "deltatag.toml").lake.root


@pytest.mark.parametrize("block", cases("python"))
def test_python_prints_what_its_comments_say(block: str) -> None:
    if "deltalake" in block:
        compile(block, "block", "exec")
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {})
    expected = "".join(re.findall(r"print\(.*\)  # (.*)", block))
    plain = printed.getvalue().replace('"', "").replace("'", "")
    assert re.sub(r"\s", "", plain) == re.sub(r"[\s\"]", "", expected)
