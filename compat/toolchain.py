"""What compat needs from outside Python: Kafka's jars, kcat, and the clients in other languages.

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
    return _fetched(BUILD / "kafka", COMPAT / "pom.xml", "Apache Kafka")


def application_libs() -> Path:
    """The folder with the jars of Kafka Streams and Kafka Connect."""
    what = "Kafka Streams and Kafka Connect"
    return _fetched(BUILD / "applications", COMPAT / "applications.xml", what)


def _fetched(folder: Path, pom: Path, what: str) -> Path:
    libs = folder / "libs"
    stamp = folder / f".fetched-{KAFKA_VERSION}"
    if _is_newer(stamp, [pom]):
        return libs
    mvn = program("mvn", f"Maven fetches {what}; on Debian or Ubuntu, apt-get install maven.")
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
        f"Maven could not fetch {what}",
    )
    stamp.touch()
    return libs


def java(main_class: str, *arguments: str, jvm: Sequence[str] = ()) -> list[str]:
    """The command that runs a class of Kafka's."""
    return [java_program(), *jvm, "-cp", f"{kafka_libs()}/*", main_class, *arguments]


def java_client(main_class: str = "Client") -> list[str]:
    """The command of one of our Java programs, compiled first if needed."""
    return _compiled(main_class, BUILD / "compat" / "java", kafka_libs())


def application(main_class: str) -> list[str]:
    """The same for a program that uses Kafka Streams."""
    return _compiled(main_class, BUILD / "applications" / "classes", application_libs())


def _compiled(main_class: str, classes: Path, libs: Path) -> list[str]:
    source = COMPAT / "clients" / "java" / f"{main_class}.java"
    if not _is_newer(classes / f"{main_class}.class", [source]):
        classes.mkdir(parents=True, exist_ok=True)
        javac = program("javac", "the Java client needs a JDK, version 17 or newer.")
        _make(
            [javac, "-cp", f"{libs}/*", "-d", str(classes), str(source)],
            f"{source.name} does not compile",
        )
    # These run for seconds: the JVM's best compiler would cost more than it brings.
    fast_start = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
    return [java_program(), *fast_start, "-cp", f"{classes}:{libs}/*", main_class]


def go_client(name: str) -> list[str]:
    """The command of one of our Go clients, built first if needed."""
    folder = COMPAT / "clients" / "go"
    binary = BUILD / "compat" / name
    if not _is_newer(binary, [*folder.glob("*/*.go"), folder / "go.mod", folder / "go.sum"]):
        go = program("go", "the Go clients need it, in version 1.26 or newer.")
        binary.parent.mkdir(parents=True, exist_ok=True)
        _make(
            [go, "build", "-trimpath", "-o", str(binary), f"./{name}"],
            f"the Go client {name} does not build",
            cwd=folder,
        )
    return [str(binary)]


def kafkajs_client() -> list[str]:
    """The command of our KafkaJS client, its packages installed first if needed.

    Node finds packages beside the program, so both are in a folder under ``build/``.
    """
    source = COMPAT / "clients" / "kafkajs"
    folder = BUILD / "compat" / "kafkajs"
    node = program("node", "the KafkaJS client needs Node.js, version 20 or newer.")
    stamp = folder / ".installed"
    if not _is_newer(stamp, [source / "package.json"]):
        npm = program("npm", "it installs KafkaJS and comes with Node.js.")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / "package.json", folder)
        _make(
            [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"],
            "npm could not install KafkaJS",
            cwd=folder,
        )
        stamp.touch()
    shutil.copy(source / "client.js", folder)
    return [node, str(folder / "client.js")]


def rust_client() -> list[str]:
    """The command of our rskafka client, built first if needed, away from the sources."""
    source = COMPAT / "clients" / "rskafka"
    folder = BUILD / "compat" / "rskafka"
    binary = folder / "target" / "debug" / "rskafka-client"
    sources = [source / "Cargo.toml", source / "src" / "main.rs"]
    if not _is_newer(binary, sources):
        cargo = program("cargo", "the rskafka client needs Rust, version 1.85 or newer.")
        for each in sources:
            copy = folder / each.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, copy)
        _make([cargo, "build", "--quiet"], "the rskafka client does not build", cwd=folder)
        binary.touch()
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
