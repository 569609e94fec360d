"""The import arrows of ARCHITECTURE.md, checked over every file; and what is packaged."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from drayd import __version__

ROOT = Path(__file__).parent.parent

# Which of our packages each one may import.
ALLOWED = {
    "protocol": frozenset[str](),
    "metadata": frozenset[str](),
    "wal": frozenset({"protocol"}),
    "drayd": frozenset({"protocol", "metadata", "wal"}),
    "compactor": frozenset({"protocol", "metadata", "wal"}),
    "spark_compaction": frozenset({"protocol", "wal"}),
    "compat": frozenset[str](),
}
# The composition root and the command line start what the rest of the daemon doesn't know.
ALSO_ALLOWED = {"drayd/app.py": {"compactor"}, "drayd/cli.py": {"compactor"}}

# Pure modules: time, ids and bytes come in as arguments, so tests can just call them.
PURE = ("protocol/**/*.py", "wal/format.py", "wal/buffer.py", "drayd/groups/**/*.py")
IMPURE_MODULES = frozenset(
    {
        "aiofiles",
        "asyncio",
        "concurrent",
        "multiprocessing",
        "obstore",
        "os",
        "pathlib",
        "random",
        "secrets",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "time",
        "uvloop",
    }
)
IMPURE_CALLS = frozenset(
    {"datetime.now", "datetime.utcnow", "date.today", "uuid.uuid1", "uuid.uuid4"}
)


def python_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, also of those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, package
            elif node.module:
                yield node.lineno, node.module


def forbidden_arrows(package: str, path: str, source: str) -> list[str]:
    allowed = ALLOWED[package] | ALSO_ALLOWED.get(path, set()) | {package}
    ours = ALLOWED.keys() | {"tests"}
    return [
        f"{path}:{line} imports {name}"
        for line, name in imported(source, package)
        if (top := name.partition(".")[0]) in ours and top not in allowed
    ]


def impurities(path: str, source: str) -> list[str]:
    found = [
        f"{path}:{line} imports {name}"
        for line, name in imported(source, "")
        if name.partition(".")[0] in IMPURE_MODULES
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in IMPURE_CALLS:
            found.append(f"{path}:{node.lineno} uses {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"open", "uuid4", "print"}:
            found.append(f"{path}:{node.lineno} calls {ast.unparse(node.func)}")
    return found


@pytest.mark.parametrize("package", [name for name in ALLOWED if (ROOT / name).is_dir()])
def test_packages_import_only_what_the_architecture_allows(package: str) -> None:
    files = python_files(package)
    assert files
    wrong = [
        arrow
        for file in files
        for arrow in forbidden_arrows(
            package, file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
        )
    ]
    assert wrong == []


def test_pure_modules_know_no_clock_randomness_files_or_sockets() -> None:
    files = {file for pattern in PURE for file in ROOT.glob(pattern)}
    names = {file.relative_to(ROOT).as_posix() for file in files}
    assert {"protocol/reader.py", "wal/format.py", "wal/buffer.py"} <= names
    wrong = [
        impurity
        for file in sorted(files)
        for impurity in impurities(
            file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
        )
    ]
    assert wrong == []


def test_the_walk_sees_every_form_of_import() -> None:
    source = "import drayd\nfrom metadata import keys\ndef f():\n    import wal.format\n"
    assert forbidden_arrows("protocol", "protocol/x.py", source) == [
        "protocol/x.py:1 imports drayd",
        "protocol/x.py:2 imports metadata",
        "protocol/x.py:4 imports wal.format",
    ]
    assert forbidden_arrows("drayd", "drayd/app.py", "import compactor.saga") == []
    assert forbidden_arrows("drayd", "drayd/produce.py", "import compactor.saga") != []


def test_the_walk_sees_impurities() -> None:
    source = "import time\nfrom asyncio import sleep\nnow = datetime.now(UTC)\nopen('x')\n"
    assert sorted(impurities("p.py", source)) == [
        "p.py:1 imports time",
        "p.py:2 imports asyncio",
        "p.py:3 uses datetime.now",
        "p.py:4 calls open",
    ]


def test_every_package_is_listed_for_packaging() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tops = ALLOWED.keys() - {"compat"}
    folders = {
        file.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for top in tops
        for file in (ROOT / top).rglob("__init__.py")
    }
    assert set(project["tool"]["setuptools"]["packages"]) == folders


def test_every_folder_with_code_is_a_package() -> None:
    """A folder without __init__.py would shadow, or be shadowed by, one of the same name."""
    bare = {
        file.parent.relative_to(ROOT).as_posix()
        for top in (*ALLOWED, "tests")
        for file in python_files(top)
        if not (file.parent / "__init__.py").exists()
    }
    assert bare == set()


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["version"] == __version__


def test_the_lock_has_hashes_and_no_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(entries) > 20
    for entry in entries:
        name_and_version = entry.partition(" ")[0]
        assert "==" in name_and_version, entry
        assert entry.endswith("\\"), f"{entry} has no hash"
    assert "://" not in lock
    assert "--index" not in lock
    assert "--find-links" not in lock
