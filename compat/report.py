"""Write the bench's results: JSON, a Markdown table and a plot, under ``build/bench``."""

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compat import toolchain
from compat.goals import DEFAULT, DRAY, SYNCED, Results, Row, number, rows
from compat.measures import PARTITIONS, SIZES

FOLDER = toolchain.BUILD / "bench"
RESULTS = FOLDER / "results.json"
SERVERS = (DRAY, SYNCED, DEFAULT)
TITLES = {DRAY: "Dray", SYNCED: "Kafka synced", DEFAULT: "Kafka default"}
COLOURS = {DRAY: "#c2410c", SYNCED: "#475569", DEFAULT: "#cbd5e1"}

# What results.json holds: {"machine": …, "disk_mb_per_s": [...], "servers": {name:
# {"groups": {group: {"run": …, "at": …, "quick": …, "load_before": …, "measures": {…}}}}}}
Stored = dict[str, Any]


def load() -> Stored:
    """What earlier runs on this machine stored; empty if there is none."""
    empty: Stored = {"machine": machine(), "disk": {}, "servers": {}}
    if not RESULTS.exists():
        return empty
    stored: Stored = json.loads(RESULTS.read_text())
    return stored if stored.get("machine") == machine() else empty


def save(stored: Stored) -> None:
    """Replace results.json."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
    part.replace(RESULTS)


def add(
    stored: Stored,
    server: str,
    group: str,
    *,
    run: str,
    quick: bool,
    load_before: float,
    measures: object,
) -> None:
    """Put a group's measures in the place of older ones."""
    groups = stored["servers"].setdefault(server, {"groups": {}})["groups"]
    groups[group] = {
        "run": run,
        "at": now(),
        "quick": quick,
        "load_before": load_before,
        "measures": measures,
    }


def results(stored: Stored) -> Results:
    """The measures without where they came from."""
    measured: dict[str, Any] = {}
    for server, entry in stored["servers"].items():
        measured[server] = {}
        for group in entry["groups"].values():
            measured[server] |= group["measures"]
    return Results(measured, stored["disk"].get("mb_per_s"))


def markdown(stored: Stored, run: str) -> str:
    """The table, preceded by the machine and, where it matters, a word on older figures."""
    table = [row for row in rows(results(stored)) if any(row.values.values())]
    about = stored["machine"]
    lines = [
        f"{about['cores']} cores ({about['cpu']}), {about['memory_gb']} GB, {about['system']}; "
        f"Apache Kafka {toolchain.KAFKA_VERSION} with a 1 GB heap; "
        f"disk: {number(stored['disk'].get('mb_per_s'))} MB/s in synced writes of 8 MiB.",
        "",
        *_provenance(stored, run),
        "",
        "| | | Dray | Kafka synced | Kafka default | goal for Dray | |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    previous = ""
    for row in table:
        what = row.what if row.what != previous else ""
        previous = row.what
        cells = " | ".join(number(row.values[server]) for server in SERVERS)
        lines.append(f"| {what} | {row.unit} | {cells} | {row.goal} | {row.verdict} |")
    return "\n".join(lines) + "\n"


def missed(stored: Stored) -> list[Row]:
    """The goals that Dray does not reach."""
    return [row for row in rows(results(stored)) if row.met is False]


def plot(stored: Stored, path: Path) -> None:
    """Bars for speed, CPU and latency."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = results(stored)
    speeds = [
        (f"{size} B\n{count} p", f"produce/{size}/{count}", "mb_per_s")
        for size in SIZES
        for count in PARTITIONS
    ]
    cpu = [
        (f"produce\n{count} p", f"produce/1000/{count}", "cpu_s_per_gb") for count in PARTITIONS
    ] + [
        ("consume\nhot", "consume/hot", "cpu_s_per_gb"),
        ("consume\nrestart", "consume/disk", "cpu_s_per_gb"),
    ]
    reads = [
        ("hot", "consume/hot", "mb_per_s"),
        ("after restart", "consume/disk", "mb_per_s"),
        ("singles", "singles/read_after_restart", "mb_per_s"),
    ]
    waits = [
        ("end to end\np50", "end_to_end", "p50_ms"),
        ("end to end\np99", "end_to_end", "p99_ms"),
        ("ack p50", "ack", "p50_ms"),
        ("ack p99", "ack", "p99_ms"),
    ]
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8), layout="constrained")
    for axis, title, bars in zip(
        axes.flat,
        (
            "produce, acks=all, MB/s",
            "consume 1 kB, MB/s",
            "server CPU at 1 kB, s per GB",
            "latency, ms",
        ),
        (speeds, reads, cpu, waits),
        strict=True,
    ):
        _bars(axis, title, bars, found)
    if found.disk_mb_per_s:
        label = "disk, 8 MiB synced"
        axes.flat[0].axhline(found.disk_mb_per_s, color="#0f172a", linestyle=":", label=label)
    axes.flat[3].set_yscale("log")  # from one millisecond to queues of seconds
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper right", ncols=4)
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _bars(axis: Any, title: str, bars: list[tuple[str, str, str]], found: Results) -> None:
    width = 0.27
    for i, server in enumerate(SERVERS):
        heights = [found.value(server, measure, field) or 0.0 for _, measure, field in bars]
        places = [place + (i - 1) * width for place in range(len(bars))]
        drawn = axis.bar(places, heights, width, label=TITLES[server], color=COLOURS[server])
        axis.bar_label(drawn, [number(h) if h else "" for h in heights], fontsize=7)
    axis.set_title(title, loc="left")
    axis.set_xticks(range(len(bars)), [label for label, _, _ in bars])
    axis.spines[["top", "right"]].set_visible(False)


def _provenance(stored: Stored, run: str) -> list[str]:
    """Say which columns come from another run, and which from a quick one."""
    lines = []
    for server in SERVERS:
        groups: Mapping[str, Any] = stored["servers"].get(server, {}).get("groups", {})
        older = sorted(name for name, group in groups.items() if group["run"] != run)
        quick = sorted(name for name, group in groups.items() if group["quick"])
        if older:
            since = min(groups[name]["at"] for name in older)
            names = "all of it" if len(older) == len(groups) else ", ".join(older)
            lines.append(
                f"{TITLES[server]}: {names} from an earlier run on this machine ({since})."
            )
        if quick:
            names = "all of it" if len(quick) == len(groups) else ", ".join(quick)
            lines.append(f"{TITLES[server]}: {names} measured with --quick, so less steady.")
    return lines or ["All columns are from the same run."]


def machine() -> dict[str, object]:
    """What identifies this machine: stored figures of another one are not compared with."""
    cpu = "unknown"
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "cpu": cpu,
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.release()}",
    }


def now() -> str:
    """The time, to the second, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
