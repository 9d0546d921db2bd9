"""Files that can be made again: what nobody uses goes, what a living process uses stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from pipelines import scratch
from pipelines.errors import ScratchError
from pipelines.joining import parts

DAY = scratch.KEPT_SECONDS
HOLDER = "import sys, time, os; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DELTATAG_SCRATCH", str(tmp_path))
    return tmp_path


def index(name: str, age: float) -> os.PathLike:
    path = scratch.indexes_folder() / name
    path.write_bytes(b"index")
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_indexes_that_nobody_asked_for_in_a_day_go(folder) -> None:
    old, young, kept = index("old", 2 * DAY), index("young", DAY / 2), index("kept", 2 * DAY)
    assert scratch.keep(kept)
    assert scratch.clean_up(time.time() + DAY / 4) == 1
    assert (old.exists(), young.exists(), kept.exists()) == (False, True, True)
    assert not scratch.keep(old)
    # the lock holds whatever the age, and however often it was asked for
    assert scratch.keep(kept) and scratch.clean_up(time.time() + 9 * DAY) == 1
    assert kept.exists() and not young.exists()


def test_a_file_that_was_put_in_place_of_another_is_kept(folder) -> None:
    path = index("one", 0)
    assert scratch.keep(path)
    os.replace(index("other", 0), path)
    assert scratch.keep(path)
    assert scratch.clean_up(time.time() + 9 * DAY) == 0 and path.exists()


def test_a_jvms_folder_stays_as_long_as_a_process_has_its_lock(folder) -> None:
    path, handle = scratch.process_folder("jvm")
    (path / "blockmgr").mkdir()
    assert path.stat().st_mode & 0o777 == 0o700
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(handle,)
    )
    assert child.stdin is not None and child.stdout is not None
    child.stdout.readline()
    os.close(handle)
    assert scratch.clean_up(time.time() + 9 * DAY) == 0 and path.exists()
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert scratch.clean_up() == 1 and not path.exists()


def test_a_folder_that_is_being_made_stays(folder) -> None:
    making = folder / "jvm" / ".new-abc"
    making.mkdir(parents=True)
    assert scratch.clean_up() == 0 and making.exists()
    assert scratch.clean_up(time.time() + 2 * DAY) == 1 and not making.exists()


def test_one_clean_up_is_bounded(folder) -> None:
    for number in range(150):
        index(f"i{number}", 2 * DAY)
    assert scratch.clean_up() == 100
    assert scratch.clean_up() == 50


def test_a_folder_that_cannot_be_written_to_is_told_in_a_sentence(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for named in ("file", "file/within", "/proc/none", "loop/within", "n" * 300):
        monkeypatch.setenv("DELTATAG_SCRATCH", str(tmp_path / named))
        with pytest.raises(ScratchError, match=r"cannot be used: .*DELTATAG_SCRATCH"):
            scratch.indexes_folder()
    monkeypatch.setenv("DELTATAG_SCRATCH", str(tmp_path))
    (tmp_path / "indexes").write_text("")
    with pytest.raises(ScratchError, match="indexes, cannot be used: a file is in its place"):
        scratch.indexes_folder()


def test_a_folder_of_another_user_is_told_in_a_sentence(folder, monkeypatch) -> None:
    """As a plain user does it, since root may write everywhere."""

    def denied(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    kept = index("kept", 0)
    monkeypatch.setattr(os, "open", denied)
    assert not scratch.keep(kept)
    with pytest.raises(ScratchError, match="cannot be used: Permission denied"):
        scratch.new_file(folder)


def test_a_system_without_a_temporary_folder_is_told_in_a_sentence(monkeypatch) -> None:
    """As Python says it where the disks of all temporary folders are full."""

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    monkeypatch.delenv("DELTATAG_SCRATCH", raising=False)
    monkeypatch.setattr(scratch.tempfile, "gettempdir", none)
    with pytest.raises(ScratchError, match=r"'/var/tmp'\] \(no permission, or no space.* DELTATAG_SCRATCH"):
        scratch.scratch_folder()


def test_no_space_for_the_rows_of_a_join_is_told_in_a_sentence(folder, monkeypatch) -> None:
    def full(**_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(parts, "KEPT_BYTES", 1)
    monkeypatch.setattr(parts.tempfile, "TemporaryFile", full)
    with pytest.raises(ScratchError, match=f"Rows of a join .* {folder}: no space is left on the disk"):
        parts.Parts(1, 1).add(0, 0, pa.record_batch({"x": [1, 2]}))
