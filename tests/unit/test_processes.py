"""What processes of deltatag leave to those after them, and what a Ctrl-C leaves of a JVM that is being started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark import SparkConf

from deltatag.__main__ import main
from pipelines import scratch
from pipelines.settings.configuration import parse_configuration
from pipelines.spark import jvm, runtime
from pipelines.spark.runtime import numba_cache_folder
from pipelines.spark.session import open_session, start_settings

ROOT = Path(__file__).resolve().parents[2]
MATCHES = """
import numba
import pyarrow as pa
import rules_index as ri
from numba.core.dispatcher import Dispatcher
rows = pa.table({"i": pa.array([1, 5, None], pa.int32())})
assert ri.compile_rules([("low", "i < 3")], rows.schema).match(rows).to_pylist() == [["low"], [], []]
import gc
kernels = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
print(numba.config.CACHE_DIR, sum(sum(each.stats.cache_misses.values()) for each in kernels), sep="|")
"""


@pytest.mark.slow
def test_the_library_alone_takes_the_kernels_that_the_command_line_has_compiled() -> None:
    bare = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    if numba_cache_folder(bare) != Path(sys.prefix) / "share" / "deltatag" / "numba":
        pytest.skip("set-up made no folder of kernels here")
    told = [
        subprocess.run(
            [sys.executable, "-c", MATCHES],
            env=bare | {"PYTHONPATH": str(ROOT)} | more,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        # the command line and Spark's workers are told of the folder; the library finds it by itself
        for more in ({"NUMBA_CACHE_DIR": str(numba_cache_folder(bare))}, {})
    ]
    folder, compiled = told[1].split("|")
    assert (Path(folder), int(compiled)) == (numba_cache_folder(bare), 0)


PAIR = """
from typing import NamedTuple
import numpy as np

class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray
"""
KERNEL = """
from rules_index.kernels.jit import jit

@jit
def total(pair):
    return pair.first.sum() + pair.second.sum()
"""
CALL = """
import sys
from importlib import import_module
import numpy as np
from kernel import total
print(total(import_module(sys.argv[1]).Pair(np.arange(3), np.arange(4))), sum(total.stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_a_cache_that_names_types_that_are_gone_is_made_anew(tmp_path: Path) -> None:
    """The cache holds the types of arguments by the names of their modules, which another version may have moved."""
    files = {"old": PAIR, "new": PAIR, "kernel": KERNEL, "call": CALL}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def called(module: str) -> str:
        command = [sys.executable, str(tmp_path / "call.py"), module]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert (called("old"), called("old")) == ("9 1", "9 0")
    (tmp_path / "old.py").unlink()
    assert (called("new"), called("new")) == ("9 1", "9 0")


WARM = """
import gc
import pyarrow as pa
import rules_index as ri
from numba.core.dispatcher import Dispatcher
from rules_index.warm_up import warm_up

def kernels():
    found = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return {f"{each.py_func.__qualname__} {types}" for each in found for types in each.overloads}

warm_up()
warm = kernels()
assert warm
columns = {"x": pa.int64(), "name": pa.string(), "f": pa.float64(), "d": pa.decimal128(9, 2), "flag": pa.bool_()}
rules = [(f"r{i}", f"x > {i} AND name IN ('a{i % 3}', 'b') OR f < {i}.5") for i in range(60)]
rules += [("low", "x < 5"), ("high", "x >= 5"), ("never", "x > 3 AND x < 2"), ("d", "d > 1.5 AND flag")]
rules += [("duplicate", "x < 5"), ("prefix", "name LIKE 'a%' AND d < 3")]
assert len(ri.lint(rules, pa.schema(columns.items())))
print(sorted(kernels() - warm))
"""


@pytest.mark.slow
def test_set_up_compiles_the_kernels_of_lint_too() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", WARM], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize("master", ["local[2]", "spark://cluster:7077"])
def test_what_rows_pass_through_lies_in_a_folder_of_the_jvms_own(tmp_path: Path, master: str) -> None:
    document = {"lake": {"root": "lake"}, "spark": {"spark.master": master}}
    configuration = parse_configuration(document, tmp_path / "deltatag.toml")
    settings = start_settings(configuration, (), "", tmp_path / "private")
    alone = master.startswith("local")
    assert settings.get("spark.local.dir") == (str(tmp_path / "private") if alone else None)
    assert (str(tmp_path / "private") in settings.get("spark.driver.extraJavaOptions", "")) == alone


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A Ctrl-C interrupts this process and those that it starts, also where whoever started it had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_ctrl_c_waits_until_the_jvm_is_known() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), jvm._interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("started")
    assert done == ["started"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
def test_a_jvm_is_started_with_a_ctrl_c_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def launched(*_: object) -> str:
        signal.raise_signal(signal.SIGINT)
        return "gateway"

    known = []
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", launched)
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", lambda **given: known.append(given["gateway"]))
    monkeypatch.setattr(jvm, "_own", [])
    with pytest.raises(KeyboardInterrupt):
        jvm.launch(SparkConf(loadDefaults=False), ())
    assert known == jvm._own == ["gateway"]


def test_whoever_starts_spark_cleans_up_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTATAG_SCRATCH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    killed, lock = scratch.process_folder("jvm")
    os.close(lock)
    monkeypatch.setattr("pipelines.spark.session._running_session", lambda: None)
    monkeypatch.setattr(runtime, "find_java", lambda: runtime.JavaHome(tmp_path, 21, "PATH"))
    monkeypatch.setenv("DELTATAG_JARS", str(tmp_path / "none"))
    with pytest.raises(runtime.JarsNotFoundError):
        open_session(parse_configuration({"lake": {"root": "lake"}}, tmp_path / "deltatag.toml"), quiet=True)
    assert not killed.exists()
    # its log is in a folder of its own
    assert [path.name for path in tmp_path.iterdir()] == ["jvm"]
    (log,) = tmp_path.rglob("spark*.log")
    assert log.parent.parent == tmp_path / "jvm"


def test_other_threads_defer_nothing() -> None:
    handlers = []

    def work() -> None:
        with jvm._interrupts_deferred():
            handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]


INTERRUPTED_IN_A_CALLBACK = """
import ctypes, sys, time
import deltatag.verbs
from deltatag.__main__ import main

callback = ctypes.CFUNCTYPE(None)(lambda: (_ for _ in ()).throw(KeyboardInterrupt))

def verb(parsed):
    callback()
    time.sleep(60)

deltatag.verbs.tag_verb = verb
sys.exit(main(["tag"]))
"""


@pytest.mark.usefixtures("interruptible")
def test_a_ctrl_c_in_a_callback_of_a_library_is_not_lost() -> None:
    run = subprocess.run([sys.executable, "-c", INTERRUPTED_IN_A_CALLBACK], capture_output=True, text=True, timeout=50)
    assert run.returncode == 130
    assert run.stderr == "deltatag: stopped; the next run continues where this one stopped.\n"


@pytest.mark.parametrize(
    ("arguments", "told"), [(["retag"], "; the next run continues where this one stopped"), (["status"], "")]
)
def test_only_verbs_that_go_on_later_say_so_when_they_are_stopped(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"deltatag.verbs.{arguments[0]}_verb", Mock(side_effect=KeyboardInterrupt))
    assert main(arguments) == 130
    assert capsys.readouterr().err == f"deltatag: stopped{told}.\n"


INTERRUPTED_WHILE_LOADED = """
import sys
from deltatag.__main__ import main

class Interrupted:
    def find_spec(self, name, *_):
        if name == "deltatag.arguments":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
sys.exit(main(["status"]))
"""


def test_a_ctrl_c_while_the_command_is_loaded_is_told_without_a_stack_trace() -> None:
    run = subprocess.run([sys.executable, "-c", INTERRUPTED_WHILE_LOADED], capture_output=True, text=True, timeout=50)
    assert (run.returncode, run.stderr) == (130, "deltatag: stopped.\n")
