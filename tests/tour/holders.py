"""Holders of whole devices and of fractions on a started machine, drawn by `oxiray status` while they hold them."""

import os
import subprocess
import sys
from pathlib import Path

import ray

ray.init(address="auto")


@ray.remote(num_cpus=0)
class Holder:
    def __init__(self, role):
        self.role = role

    def holds(self):
        return self.role, os.getpid(), ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]


WANTED = [("trainer", 2), ("evaluator", 0.5), ("server", 0.25), ("notebook", 0.6)]
holders = [Holder.options(num_gpus=share, name=role).remote(role) for role, share in WANTED]
shares = dict(WANTED)
held = ray.get([holder.holds.remote() for holder in holders])

print("GPU of this machine    held by (share, process)")
for device in range(int(ray.cluster_resources()["GPU"])):
    # A whole request holds each of its devices whole.
    holders_here = [(min(shares[role], 1), role, pid) for role, pid, ids, _ in held if device in ids]
    taken = sum(share for share, _, _ in holders_here)
    bar = "#" * round(taken * 20)
    names = ", ".join(f"{role} ({share:g}, pid {pid})" for share, role, pid in holders_here) or "nobody"
    print(f"  {device} [{bar:<20}] {names}")

print("The same, as `oxiray status` shows it:")
command = Path(sys.executable).parent / "oxiray"
print(subprocess.run([command, "status"], capture_output=True, text=True, check=True).stdout.rstrip())
