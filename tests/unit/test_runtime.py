"""Finding Java, Delta's jars and writable folders, and what a person reads where one is missing."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines import scratch
from pipelines.scratch import scratch_folder
from pipelines.spark import runtime
from pipelines.spark.runtime import JarsNotFoundError, JavaNotFoundError

INCUBATOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def forget_process_folder() -> Iterator[None]:
    """No test is given the temporary folder of another one."""
    scratch._process_folder.cache_clear()
    yield
    scratch._process_folder.cache_clear()


def make_java(home: Path, version: str, knows_incubator: bool = True, tells_home: bool = True) -> Path:
    """A stand-in for a Java: a script that answers as `java -XshowSettings:properties -version` does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    # Only what the shell has built in: PATH leads to nothing else here.
    lines = ["#!/bin/sh"]
    if not knows_incubator:
        lines.append(f'for argument do [ "$argument" = {INCUBATOR} ] && exit 1; done')
    if tells_home:
        lines.append(f"printf '%s\\n' {shlex.quote(f'    java.home = {home}')} >&2")
    lines.append(f"printf '%s\\n' '    java.specification.version = {version}' >&2")
    lines.append("printf '%s\\n' \"$@\"")
    java.write_text("\n".join(lines) + "\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """An environment without any Java, whose folders all lie in a temporary one."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(runtime.importlib.util, "find_spec", lambda name: None)
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_java_home_comes_first(bare: dict[str, str], tmp_path: Path, version: str) -> None:
    make_java(tmp_path / "named", version)
    make_java(tmp_path / "other", "17")
    bare |= {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(tmp_path / "other" / "bin")}
    assert runtime.find_java(bare) == runtime.JavaHome(tmp_path / "named", int(version), "JAVA_HOME")


@pytest.mark.parametrize("old", ["1.8", "11", "16"])
def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(bare: dict[str, str], tmp_path: Path, old: str) -> None:
    make_java(tmp_path / "old", old)
    make_java(tmp_path / "new", "17")
    bare |= {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert runtime.find_java(bare) == runtime.JavaHome(tmp_path / "new", 17, "PATH")


def test_a_java_that_does_not_tell_its_home_lives_where_its_link_ends(bare: dict[str, str], tmp_path: Path) -> None:
    java = make_java(tmp_path / "lib" / "jdk", "21", tells_home=False)
    (tmp_path / "bin" / "java").symlink_to(java)
    assert runtime.find_java(bare).path == tmp_path / "lib" / "jdk"


def test_a_link_on_the_path_leads_to_the_home_that_java_tells(bare: dict[str, str], tmp_path: Path) -> None:
    java = make_java(tmp_path / "lib" / "jdk", "21")
    (tmp_path / "bin" / "java").symlink_to(java)
    assert runtime.find_java(bare).path == tmp_path / "lib" / "jdk"


def test_a_java_without_sparks_module_is_wrapped_and_loses_no_other_argument(
    bare: dict[str, str], tmp_path: Path
) -> None:
    make_java(tmp_path / "slim $x 'y'", "21", knows_incubator=False)
    bare["JAVA_HOME"] = str(tmp_path / "slim $x 'y'")
    found = runtime.find_java(bare)
    assert (found.version, found.origin) == (21, "JAVA_HOME")
    arguments = ["-cp", "a b", INCUBATOR, "", "$HOME", "Main"]
    run = subprocess.run([str(found.path / "bin" / "java"), *arguments], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:-1] == ["-cp", "a b", "", "$HOME", "Main"]
    assert runtime.find_java(bare) == found
    # A process that this one starts finds the wrapper as its JAVA_HOME, and must keep it.
    assert runtime.find_java(bare | {"JAVA_HOME": str(found.path)}).path == found.path


@pytest.mark.skipif(os.getuid() == 0, reason="root can write everywhere")
def test_the_wrapper_goes_to_the_home_where_the_environment_is_read_only(
    bare: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "slim", "21", knows_incubator=False)
    (tmp_path / "venv").mkdir(mode=0o500)
    monkeypatch.setenv("HOME", bare["HOME"])
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    found = runtime.find_java(bare | {"JAVA_HOME": str(tmp_path / "slim")})
    assert found.path.is_relative_to(tmp_path / "home")


def test_without_any_java_the_message_says_what_was_seen_and_what_to_do(bare: dict[str, str], tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11")
    broken = tmp_path / "bin" / "java"
    broken.write_text("#!/bin/sh\nexit 2\n")
    broken.chmod(0o755)
    with pytest.raises(JavaNotFoundError) as error:
        runtime.find_java(bare | {"JAVA_HOME": str(tmp_path / "old")})
    message = str(error.value)
    assert f"{tmp_path / 'old' / 'bin' / 'java'} (JAVA_HOME) is Java 11" in message
    assert f"{broken} (PATH) does not run" in message
    assert "Java 17 or later" in message and "JAVA_HOME" in message and "make setup" in message


def test_a_working_directory_that_was_removed_is_told(bare: dict[str, str], tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(runtime.JavaNotFoundError, match="go to another folder"):
        runtime.find_java(bare)


def fill(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put stand-ins of both jars into `folder` and expect their hashes."""
    folder.mkdir(parents=True)
    for name in ("DELTA_SPARK", "DELTA_STORAGE"):
        jar = getattr(runtime, name)
        (folder / jar.file_name).write_bytes(name.encode())
        expected = hashlib.sha256(name.encode()).hexdigest()
        monkeypatch.setattr(runtime, name, runtime.Jar(jar.group, jar.artifact, jar.version, expected))


@pytest.mark.parametrize("named", [True, False])
def test_jars_are_found_in_the_named_folder_or_in_the_environment(
    bare: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    folder = tmp_path / "jars" if named else tmp_path / "venv" / "share" / "deltatag" / "jars"
    fill(folder, monkeypatch)
    if named:
        bare["DELTATAG_JARS"] = str(folder)
    jars = runtime.find_jars(bare)
    assert jars == (folder / runtime.DELTA_SPARK.file_name, folder / runtime.DELTA_STORAGE.file_name)


@pytest.mark.parametrize("damage", ["missing", "cut", "folder"])
def test_a_missing_or_damaged_jar_is_named_with_the_place_it_belongs(
    bare: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    folder = tmp_path / "jars"
    fill(folder, monkeypatch)
    jar = folder / runtime.DELTA_STORAGE.file_name
    jar.unlink()
    if damage == "cut":
        jar.write_bytes(b"DELTA")
    elif damage == "folder":
        jar.mkdir()
    with pytest.raises(JarsNotFoundError) as error:
        runtime.find_jars(bare | {"DELTATAG_JARS": str(folder)})
    message = str(error.value)
    assert str(folder) in message and "delta-storage-4.4.0.jar" in message
    assert "DELTATAG_JARS" in message and "make setup" in message


def test_numba_gets_a_folder_that_can_be_written(bare: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert runtime.numba_cache_folder(bare | {"NUMBA_CACHE_DIR": str(tmp_path / "mine")}) == tmp_path / "mine"
    folder = runtime.numba_cache_folder(bare | {"NUMBA_CACHE_DIR": str(tmp_path / "file" / "below")})
    (folder / "probe").write_text("")


def test_without_home_or_environment_the_numba_folder_is_private(
    bare: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "venv").write_text("")
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = runtime.numba_cache_folder({})
    assert folder.parent.stat().st_mode & 0o077 == 0
    folder.parent.chmod(0o777)
    assert not runtime.numba_cache_folder({}).is_relative_to(folder.parent)


def _someone_elses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.setattr(runtime.os, "getuid", lambda: folder.stat().st_uid + 1)


def _open_to_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def _a_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to("elsewhere")


def _a_dangling_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.symlink_to("nowhere")


@pytest.mark.parametrize("planted", [_someone_elses, _open_to_all, _a_link, _a_dangling_link])
def test_a_temporary_folder_that_others_made_or_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    user = os.getuid() + (planted is _someone_elses)
    monkeypatch.delenv("DELTATAG_SCRATCH")
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(tmp_path))
    planted(tmp_path / f"deltatag-{user}", monkeypatch)
    folder = scratch_folder()
    assert folder.parent == tmp_path and folder.name != f"deltatag-{user}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder == scratch_folder()


def test_the_temporary_folder_is_private_and_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTATAG_SCRATCH")
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = scratch_folder()
    assert folder == scratch_folder() == tmp_path / f"deltatag-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
