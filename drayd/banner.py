"""What a person sees when the broker is ready: where to connect, where the data is, what to try."""

from __future__ import annotations

from drayd import __version__
from drayd.config import Settings
from drayd.kinds import HostPort


def banner(settings: Settings, *, advertised: HostPort, http: HostPort | None) -> str:
    """The start banner. The addresses are the real ones, after port 0 was resolved."""
    if settings.uses_data_dir:
        data = str(settings.data_dir.absolute())
    else:
        data = f"{settings.storage_url} · metadata in {settings.metadata_url}"
    lines = [
        f"Dray {__version__} is ready.",
        f"  Kafka clients  {advertised}",
        f"  Data           {data}",
    ]
    if settings.uses_data_dir and settings.storage:
        lines.append(f"  Records        {settings.storage}")
    if settings.uses_data_dir and settings.metadata:
        lines.append(f"  Metadata       {settings.metadata}")
    if http is not None:
        if http.is_wildcard:
            http = HostPort("localhost", http.port)
        lines.append(f"  Health         http://{http}/readyz · metrics http://{http}/metrics")
    lines.append(
        f"  Try            echo hello | kcat -P -b {advertised} -t first"
        f" && kcat -C -b {advertised} -t first -e"
    )
    return "\n".join(lines)
