"""The actor that each rank is.

Invariant: nothing of the user's is loaded before `join` has set the rank's variables.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
from typing import Any

from oxiray import _core, _families, _pickling
from oxiray.train import _data, _ingest, _inside
from oxiray.util._node import get_node_ip_address


class RayTrainWorker:
    """One rank's process: it joins a group, runs the training function once, and ends."""

    def describe(self, wants_port: bool) -> dict[str, Any]:
        """Where this process is, what it was granted, and a port held for the ranks to meet at."""
        facts = _core.context()
        host = get_node_ip_address()
        port = None
        if wants_port:
            # Held, not looked for: what is free now need not be when the group meets.
            listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            listener.bind((host, 0))
            listener.listen(1024)
            port = listener.getsockname()[1]
            _inside.hold(listener)
        # A group's workers on one machine see the devices of all.
        visible = {name: os.environ[name].split(",") for name in _families.JOINED if os.environ.get(name)}
        return {
            "node_id": facts["node_id"], "host": host, "hostname": socket.gethostname(), "pid": os.getpid(), "port": port,
            "devices": {name: list(ids) for name, (ids, _) in facts["devices"].items()}, "visible": visible,
        }  # fmt: skip

    def join(self, session: _inside.Session, variables: dict[str, str], keeps_port: bool) -> bool:
        """Takes a place in the group. Returns whether this machine sees the run's folder."""
        os.environ.update(variables)
        if not keeps_port:
            _inside.hold(None)
        _inside.enter(session)
        return session.storage is None or session.storage.is_seen_here()

    def run(self, work: bytes) -> bytes:
        """Runs the training function; returns what rank 0's returned."""
        session = _inside.current("run")
        function, config, context, datasets, data_config, data_context = pickle.loads(work)
        _ingest.take_over(data_context)
        place = session.place
        session.datasets = _data.divided(datasets, data_config, place.world_rank, place.world_size)
        with (context or contextlib.nullcontext)():
            returned = function(*config)
        session.settled_uploads()
        if place.world_rank == 0:
            _inside.refuse_tensors(returned, "what the training function returns")
        _core.get_one(session.exchange.end.remote(place.world_rank))
        return _pickling.dumps(returned) if place.world_rank == 0 else b""
