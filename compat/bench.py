"""``python -m compat.bench``: measure Dray and Apache Kafka with the same clients on this machine.

The servers run one after the other. Each group of figures is stored as soon as it is there, so
that ``--server dray`` can be repeated alone and compared with Kafka's stored figures; the table
says which figures come from another run.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

from compat import measures, measures_groups, report, servers, toolchain
from compat.goals import number
from compat.load import LoadFailed
from compat.servers import ServerFailed
from compat.wire import WireError

GROUPS = {**measures.GROUPS, "groups": measures_groups.groups}

# Beyond this load for each core, something else is running.
BUSY = 0.4


def main() -> int:
    """Measure, write, and say which goals are missed."""
    options = _options()
    servers.exit_on_sigterm()
    measures.raise_file_limit()
    scale = measures.QUICK if options.quick else measures.Scale()
    stored = report.load()
    run = report.now()
    failures: list[str] = []
    disk: list[float] = []
    load = os.getloadavg()[0]
    if not options.report and load > BUSY * (os.cpu_count() or 1):
        print(f"this machine is busy (load {load:.1f}): the figures will be too low", flush=True)
    if not options.report:
        try:
            toolchain.kcat()
            toolchain.kafka_libs()
            for server in options.server:
                with servers.scratch("bench-disk-") as folder:
                    disk.append(measures.disk(folder, scale.baseline_s))
                for group in options.only:
                    if group not in measures.SKIPPED.get(server, ()):
                        failures += _measure(stored, server, group, scale, run, options.quick)
        except toolchain.Missing as missing:
            print(missing, file=sys.stderr)
            return 2
        stored["disk"] = {"mb_per_s": statistics.median(disk), "all": disk, "at": run}
        report.save(stored)
    text = report.markdown(stored, run)
    report.FOLDER.mkdir(parents=True, exist_ok=True)
    (report.FOLDER / "results.md").write_text(text)
    report.plot(stored, report.FOLDER / "results.png")
    print(f"\n{text}")
    for row in report.missed(stored):
        value = number(row.values["dray"])
        print(f"missed: {row.what}: {value} {row.unit}, the goal is {row.goal}")
    for failure in failures:
        print(f"failed: {failure}")
    print(f"written: {_short(report.RESULTS)}, results.md, results.png")
    return 1 if failures else 0


def _measure(
    stored: report.Stored, server: str, group: str, scale: measures.Scale, run: str, quick: bool
) -> list[str]:
    print(f"{server}: {group} … ", end="", flush=True)
    began = time.perf_counter()
    load_before = os.getloadavg()[0]
    with servers.scratch(f"bench-{server}-{group}-") as folder:
        try:
            found = GROUPS[group](measures.factory(server, folder), scale)
        except (LoadFailed, ServerFailed, WireError, OSError) as error:
            print("failed")
            return [f"{server}, {group}: {error}"]
    report.add(stored, server, group, run=run, quick=quick, load_before=load_before, measures=found)
    report.save(stored)
    print(f"{time.perf_counter() - began:.0f} s")
    for name, values in found.items():
        print(f"    {name}: " + ", ".join(f"{key} {number(each)}" for key, each in values.items()))
    return []


def _short(path: Path) -> Path:
    return path.relative_to(toolchain.ROOT)


def _options() -> argparse.Namespace:
    kinds = ["kafka-synced", "kafka-default", "dray"]
    groups = list(GROUPS)
    parser = argparse.ArgumentParser(
        prog="python -m compat.bench",
        description="Measure Dray against Apache Kafka on this machine. Keep the machine quiet: "
        "clients and servers share its cores.",
    )
    parser.add_argument("--quick", action="store_true", help="a few minutes, less steady")
    parser.add_argument(
        "--server",
        action="append",
        choices=kinds,
        help="only this server, compared with what is stored of the others; may be repeated",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=groups,
        help="only this group of figures; may be repeated",
    )
    parser.add_argument(
        "--report", action="store_true", help="measure nothing; write the stored results again"
    )
    options = parser.parse_args()
    options.server = options.server or kinds
    options.only = options.only or groups
    return options


if __name__ == "__main__":
    sys.exit(main())
