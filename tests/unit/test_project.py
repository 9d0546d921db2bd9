"""What the repository promises as a whole: layers, a lock that names no host, files that speak of no machine."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("rules_index", "pipelines", "quality", "assets", "deltatag")
# What executors must have installed; everything else costs them an install on every node. llvmlite comes with numba.
LIBRARY_IMPORTS = {"rules_index", "numpy", "numba", "llvmlite", "pyarrow", "polars"} | set(sys.stdlib_module_names)


def tracked_files() -> list[Path]:
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.decode().split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[tuple[str, str]]:
    """Names and contents of the tracked files that are text."""
    found = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" not in data:
            found.append((str(path.relative_to(ROOT)), data.decode("utf-8")))
    return found


def modules(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


@functools.cache
def imported(path: Path) -> set[str]:
    """Top-level names of all that a module imports, also inside its functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_stands_below_it(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    wrong = {str(path.relative_to(ROOT)): names for path in modules(layer) if (names := imported(path) & above)}
    assert wrong == {}


def test_the_library_needs_no_more_than_its_four_packages() -> None:
    wrong = {
        str(path.relative_to(ROOT)): names
        for path in modules("rules_index")
        if (names := imported(path) - LIBRARY_IMPORTS)
    }
    assert wrong == {}


def test_the_library_imports_without_spark_or_dagster() -> None:
    unwanted = ("pyspark", "py4j", "delta", "deltalake", "pandas", "dagster", "great_expectations")
    code = f"import rules_index, sys; print([name for name in {unwanted} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (run.returncode, run.stdout.strip()) == (0, "[]"), run.stderr


def lock_entries() -> dict[str, str]:
    text = (ROOT / "requirements.txt").read_text()
    return {entry.split("==")[0]: entry for entry in re.split(r"\n(?=\S)", text) if "==" in entry}


def test_every_locked_package_has_one_version_and_its_hashes() -> None:
    wrong = [
        name
        for name, entry in lock_entries().items()
        if not re.match(r"[\w.\-]+(\[[\w,\-]+\])?==[\w.+!]+\b", entry) or "--hash=sha256:" not in entry
    ]
    assert wrong == []


def test_the_lock_names_no_place_to_download_from() -> None:
    text = (ROOT / "requirements.txt").read_text()
    assert re.findall(r"\S*://\S*|--\S*index\S*|--find-links\S*|--trusted-host\S*|@ ?\w+:\S*", text) == []


def test_the_lock_holds_every_dependency_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    needed = {re.split(r"[\[<>=!~ ]", text)[0] for group in groups for text in group}
    assert needed - {name.split("[")[0] for name in lock_entries()} == set()


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        (
            "a package registry's host",
            r"(?i)\b(pypi\.org|pythonhosted\.org|repo1?\.maven\.org|repo\.maven\.apache\.org)\b",
        ),
        ("a path of somebody's machine", r"(?<![\w.{}/$-])/(home/(?!someone\b)\w+|root|work|Users/\w+)/\w"),
        ("a key or a token", r"(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----)"),
        ("work that is left undone", r"\b(TODO|FIXME|XXX)\b"),
    ],
)
def test_no_file_names(what: str, pattern: str) -> None:
    mine = str(Path(__file__).resolve().relative_to(ROOT))
    wrong = [
        f"{name}: {match.group()}" for name, text in texts() if name != mine for match in re.finditer(pattern, text)
    ]
    assert wrong == [], what


def test_no_lock_of_another_tool_and_no_made_file_is_tracked() -> None:
    names = {path.name for path in tracked_files()}
    assert names & {"uv.lock", "poetry.lock", "Pipfile.lock", ".DS_Store"} == set()
    assert [str(path) for path in tracked_files() if path.suffix in (".pyc", ".nbi", ".nbc", ".jar", ".whl")] == []


def test_make_help_tells_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert targets is not None
    run = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    told = {line.split()[0] for line in run.stdout.splitlines() if line.startswith("  ")}
    assert told == set(targets.group(1).split())


def test_the_readme_names_the_two_commands() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert {"make demo\n", "make test\n"} <= set(blocks)


def test_the_readme_tells_how_to_see_the_demonstration_in_dagster() -> None:
    text = (ROOT / "README.md").read_text()
    assert "DAGSTER_HOME=$PWD/demo/.dagster .venv/bin/dagster dev     # then open http://localhost:3000\n" in text


def test_continuous_integration_runs_the_kernels_with_bounds_checks_and_a_checking_allocator() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"
    run = subprocess.run(["make", "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    (checked,) = [line for line in run.stdout.splitlines() if "NUMBA_BOUNDSCHECK=1" in line]
    for part in (
        "MALLOC_CHECK_=3",
        "LD_PRELOAD=libc_malloc_debug.so",
        "tests/unit/engines",
        "tests/unit/test_damages.py",
    ):
        assert part in checked


def test_numba_stays_below_its_next_minor() -> None:
    """Kernels use what is private to it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (wanted,) = [each for each in project if each.startswith("numba")]
    found = re.fullmatch(r"numba>=0\.(\d+)\.\d+,<0\.(\d+)", wanted)
    assert found is not None and int(found[2]) == int(found[1]) + 1
    assert wanted in (ROOT / "requirements.in").read_text().splitlines()
