"""What compat needs from outside Python: Kafka's jars, kcat and the franz-go client.

Everything lands under ``build/`` and is made once; a source file that is newer than what was
made from it makes it again. A missing program is reported in one sentence by ``Missing``.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
COMPAT = ROOT / "compat"

KAFKA_VERSION = "4.3.1"
TOOLS = "org.apache.kafka.tools."


class Missing(Exception):
    """A program that has to be installed first; the message says which and how."""


def program(name: str, advice: str) -> str:
    """The path of a program on PATH."""
    path = shutil.which(name)
    if path is None:
        raise Missing(f"{name} is not installed: {advice}")
    return path


def kcat() -> str:
    """The path of kcat."""
    return program(
        "kcat", "on Debian or Ubuntu, apt-get install kcat; with Homebrew, brew install kcat."
    )


def java_program() -> str:
    """The path of java."""
    return program("java", "Apache Kafka and its client need a JDK, version 17 or newer.")


def kafka_libs() -> Path:
    """The folder with Kafka's jars, fetched by Maven if it isn't there yet."""
    libs = BUILD / "kafka" / "libs"
    pom = COMPAT / "pom.xml"
    stamp = BUILD / "kafka" / f".fetched-{KAFKA_VERSION}"
    if _is_newer(stamp, [pom]):
        return libs
    mvn = program("mvn", "Maven fetches Apache Kafka; on Debian or Ubuntu, apt-get install maven.")
    java_program()
    shutil.rmtree(libs, ignore_errors=True)
    libs.mkdir(parents=True)
    _make(
        [
            *(mvn, "--quiet", "--batch-mode", "--file", str(pom)),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={libs}",
        ],
        "Maven could not fetch Apache Kafka",
    )
    stamp.touch()
    return libs


def java(main_class: str, *arguments: str, jvm: Sequence[str] = ()) -> list[str]:
    """The command that runs a class of Kafka's."""
    return [java_program(), *jvm, "-cp", f"{kafka_libs()}/*", main_class, *arguments]


def java_client() -> list[str]:
    """The command of our Java client, compiled first if needed."""
    source = COMPAT / "clients" / "java" / "Client.java"
    classes = BUILD / "compat" / "java"
    libs = kafka_libs()
    if not _is_newer(classes / "Client.class", [source]):
        classes.mkdir(parents=True, exist_ok=True)
        javac = program("javac", "the Java client needs a JDK, version 17 or newer.")
        _make(
            [javac, "-cp", f"{libs}/*", "-d", str(classes), str(source)],
            "the Java client does not compile",
        )
    return [java_program(), "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{libs}/*", "Client"]


def franz_client() -> list[str]:
    """The command of our franz-go client, built first if needed."""
    folder = COMPAT / "clients" / "franz"
    binary = BUILD / "compat" / "franz"
    if not _is_newer(binary, [folder / "main.go", folder / "go.mod", folder / "go.sum"]):
        go = program("go", "the franz-go client needs Go, version 1.26 or newer.")
        binary.parent.mkdir(parents=True, exist_ok=True)
        _make(
            [go, "build", "-trimpath", "-o", str(binary), "."],
            "the franz-go client does not build",
            cwd=folder,
        )
    return [str(binary)]


def _is_newer(product: Path, sources: Sequence[Path]) -> bool:
    if not product.exists():
        return False
    made_at = product.stat().st_mtime
    return all(source.stat().st_mtime <= made_at for source in sources)


def _make(command: list[str], complaint: str, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{complaint}:\n{done.stdout}{done.stderr}".rstrip())
