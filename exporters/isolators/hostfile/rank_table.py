"""A rank table: the JSON file that tells an Ascend job its devices, version 1.0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["devices_in", "write_table"]

_VERSION = "1.0"


def devices_in(text: str) -> dict[str, Any]:
    """Every device of a rank table in order of rank, as `SERVER DEVICE_ID` with what the table says about both.

    Raises:
        ValueError: The text is no such table; the sentence says why.
    """
    try:
        table = json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(table, dict) or not isinstance(table.get("server_list"), list):
        raise ValueError("valid is a JSON object with a server_list")  # noqa: TRY004 - what is in a file is a value
    if table.get("version") != _VERSION:
        raise ValueError(f"version is {table.get('version')!r}; valid is {_VERSION!r}")
    found: dict[str, Any] = {}
    for server in table["server_list"]:
        if not _is_server(server):
            raise ValueError(f"server {str(server)[:80]} is none; valid has server_id and a list of devices")
        about = {name: value for name, value in server.items() if name != "device"}
        for device in server["device"]:
            key = f"{server['server_id']} {device['device_id']}"
            if key in found:
                raise ValueError(f"device {device['device_id']} of server {server['server_id']} is there twice")
            found[key] = {"server": about, "device": device}
    return dict(sorted(found.items(), key=lambda item: int(item[1]["device"]["rank_id"])))


def write_table(entries: Mapping[str, Any], original: str) -> str:
    """The table with these devices, their ranks counted anew from 0; what else there is comes from `original`."""
    servers: dict[str, dict[str, Any]] = {}
    for rank, entry in enumerate(entries.values()):
        server = servers.setdefault(entry["server"]["server_id"], {**entry["server"], "device": []})
        server["device"].append({**entry["device"], "rank_id": str(rank)})
    table = {**json.loads(original), "server_count": str(len(servers)), "server_list": list(servers.values())}
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"


def _is_server(server: object) -> bool:
    return (
        isinstance(server, dict)
        and isinstance(server.get("server_id"), str)
        and isinstance(server.get("device"), list)
        and all(isinstance(device, dict) and _are_numbers(device) for device in server["device"])
    )


def _are_numbers(device: dict[str, Any]) -> bool:
    return all(
        isinstance(device.get(name), str) and device[name].isascii() and device[name].isdigit()
        for name in ("device_id", "rank_id")
    )
