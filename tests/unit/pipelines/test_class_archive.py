"""An archive of classes is used whole or not at all, and never in the way of a session or of people's own settings."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from pipelines.settings.configuration import parse_configuration
from pipelines.spark.class_archive import QUIET, archive_name, java_options
from pipelines.spark.runtime import JavaHome, find_java
from pipelines.spark.session import start_settings


@pytest.fixture(scope="module")
def java() -> JavaHome:
    return find_java()


@pytest.fixture
def archive(java: JavaHome, tmp_path: Path) -> Path:
    """A file with an archive's name that is none, in a folder whose name wants quoting."""
    path = tmp_path / "a place" / archive_name(java, 10_000)
    path.parent.mkdir()
    path.write_bytes(b"no classes" * 1000)
    return path


def version_told(java: JavaHome, *options: str) -> tuple[int, str]:
    command = [str(java.path / "bin" / "java"), *options, "-version"]
    run = subprocess.run(command, capture_output=True, text=True)
    return run.returncode, (run.stdout + run.stderr).replace(", sharing", "")


def test_a_whole_archive_becomes_options_that_are_taken_apart_as_they_were_meant(java: JavaHome, archive: Path) -> None:
    options = shlex.split(java_options(java, archive.parent))
    assert options == [f"-XX:SharedArchiveFile={archive}", *QUIET.split()]


def test_what_is_missing_cut_short_or_anothers_is_not_used(java: JavaHome, archive: Path) -> None:
    other = archive.parent / "bin" / "java"
    other.parent.mkdir()
    other.write_text("another Java")
    assert java_options(JavaHome(archive.parent, java.version, "PATH"), archive.parent) == ""
    archive.write_bytes(archive.read_bytes()[:-1])
    assert java_options(java, archive.parent) == ""
    archive.unlink()
    assert java_options(java, archive.parent) == ""
    assert java_options(java, archive.parent / "nowhere") == ""


def test_a_java_starts_without_a_word_where_the_archive_is_none_of_its_own(java: JavaHome, archive: Path) -> None:
    assert version_told(java, *shlex.split(java_options(java, archive.parent))) == version_told(java)


def test_options_of_the_configuration_stand_behind_those_of_the_archive(
    java: JavaHome, archive: Path, tmp_path: Path
) -> None:
    option, options = "spark.driver.extraJavaOptions", java_options(java, archive.parent)

    def settings(own: dict[str, str], options: str) -> dict[str, str]:
        document = {"lake": {"root": "lake"}, "spark": own}
        return start_settings(parse_configuration(document, tmp_path / "deltatag.toml"), ("a.jar",), options)

    assert settings({}, options)[option] == options
    assert settings({option: "-Xss4m"}, options)[option] == f"{options} -Xss4m"
    assert settings({option: "-Xss4m"}, "")[option] == "-Xss4m"
    assert option not in settings({}, "")
