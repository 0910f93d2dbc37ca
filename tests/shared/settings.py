"""What the documentation's programs find where they run: machines with devices, clusters of several nodes, somebody at a terminal.

The page's own block stays as a user writes it, `ray.init()` included. A setting is a call in the page's process, just before the
block that needs it: nothing of the blocks before is connected then.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import commands
import ray
import tpus
from ray.cluster_utils import Cluster
from watching import wait_until

HOSTS = Path(__file__).resolve().parent.parent / "fixtures" / "hosts"


def _begin() -> None:
    """Leaves what the blocks before were connected to, and the machine that they had."""
    ray.shutdown()
    os.environ.pop("OXIRAY_HOST_ROOT", None)
    os.environ.pop("RAY_ADDRESS", None)


def recorded(host: str) -> None:
    """The machine is one that was recorded, with its devices."""
    _begin()
    os.environ["OXIRAY_HOST_ROOT"] = str(HOSTS / host)


def two_racks() -> None:
    """Two machines with eight GPUs each, in one rack and one domain of NVLink, and another in the next rack."""
    _begin()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    for place in ("a", "a", "b"):
        cluster.add_node(num_cpus=1, num_gpus=8, labels={"ray.io/gpu-domain": place, "rack": place})
    _join(cluster)


def slices_of_tpus() -> None:
    """Two slices of TPUs of two machines each."""
    _begin()
    folder = tempfile.TemporaryDirectory(prefix="oxiray-slices-")
    atexit.register(folder.cleanup)
    _join(tpus.start_slices(Path(folder.name)))


def _join(cluster: Cluster) -> None:
    """Has `ray.init()` find this cluster, which ends with the page's process."""
    atexit.register(cluster.shutdown)
    atexit.register(ray.shutdown)
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address


def somebody_at_the_debugger() -> None:
    """The first process that stops at a breakpoint is told to go on, as by who types `c` at `oxiray debug SESSION`."""
    _begin()
    threading.Thread(target=_go_on, daemon=True).start()


def _go_on() -> None:
    wait_until(ray.is_initialized)
    address = f"--address={ray.get_runtime_context().gcs_address}"
    wait_until(lambda: json.loads(commands.run("debug", "--json", address)) != [])
    [stopped] = json.loads(commands.run("debug", "--json", address))
    program = "import sys; sys.argv[0] = 'oxiray'; from oxiray._cli import main; main()"
    command = [sys.executable, "-c", program, "debug", stopped["session"], address]
    subprocess.run(command, input="c\n", stdout=subprocess.DEVNULL, text=True, check=True)


#: Of blocks that need more than this machine has: the page, what the block has, and the call that comes before it.
NEEDED = [
    ("docs/accelerators.md", '"mig-1g.5gb"', "recorded('nvidia-a100-mig')"),
    ("docs/accelerators.md", 'accelerator_type="H100"', "recorded('nvidia-h100x8')"),
    ("docs/accelerators.md", "topology_strategy=", "two_racks()"),
    ("docs/accelerators.md", "run_on_slice(", "slices_of_tpus()"),
    ("docs/kubernetes.md", "class GPUActor", "recorded('nvidia-h100x8')"),
    ("docs/observing.md", "breakpoint()", "somebody_at_the_debugger()"),
]


def before(page: str, text: str) -> str:
    """The program that makes the setting of a block of a page; empty where it needs none."""
    shared = str(Path(__file__).parent)
    calls = [call for named, part, call in NEEDED if named == page and part in text]
    return "".join(f"import sys; sys.path.append({shared!r}); import settings; settings.{call}\n" for call in calls)
