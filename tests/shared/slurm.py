"""A Slurm cluster on this machine: a controller and two nodes, each with two processors and three devices of a kind `gpu`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from homes import free_port
from watching import wait_until

NODES = ("n1", "n2")
GPUS = 3
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbcast", "scancel", "sinfo", "mknod")
#: Debian has daemons where only root looks for them.
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
#: The number of NVIDIA's devices: no driver is there, and Slurm only asks whether they are devices.
_MAJOR = 195


class Slurm:
    """The cluster, with all that it writes in `folder`."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
        if missing or os.geteuid() != 0:
            pytest.skip(f"Slurm cannot be started: {', '.join(missing) or 'only root may'} (Debian: slurmctld, slurmd, munge)")
        self.folder = folder
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._configure()

    def _configure(self) -> None:
        at = self.folder
        (at / "state").mkdir()
        (at / "munge").mkdir(mode=0o755)
        (at / "munge.key").write_bytes(os.urandom(1024))
        (at / "munge.key").chmod(0o600)
        for number in range(GPUS):
            os.mknod(at / f"gpu{number}", 0o600 | stat.S_IFCHR, os.makedev(_MAJOR, number))
        (at / "gres.conf").write_text(
            "".join(f"NodeName={node} Name=gpu File={at}/gpu[0-{GPUS - 1}]\n" for node in NODES)
        )
        settings = {
            "ClusterName": "test",
            "SlurmctldHost": "localhost(127.0.0.1)",
            "SlurmctldPort": free_port(),
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "CryptoType": "crypto/munge",
            "AuthInfo": f"socket={at}/munge/socket",
            "StateSaveLocation": at / "state",
            "SlurmdSpoolDir": f"{at}/spool-%n",
            "SlurmctldPidFile": at / "slurmctld.pid",
            "SlurmdPidFile": f"{at}/slurmd-%n.pid",
            "SlurmctldLogFile": at / "slurmctld.log",
            "SlurmdLogFile": f"{at}/slurmd-%n.log",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SwitchType": "switch/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU",
            "SlurmdParameters": "config_overrides",
            "AccountingStorageType": "accounting_storage/none",
            "JobAcctGatherType": "jobacct_gather/none",
            # Who is submitted is looked at at once.
            "SchedulerParameters": "batch_sched_delay=0,bf_interval=1",
            "ReturnToService": 2,
            "KillWait": 10,
            "GresTypes": "gpu",
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        lines += [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 Gres=gpu:{GPUS}"
            for node in NODES
        ]
        lines.append(f"PartitionName=main Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP")
        (at / "slurm.conf").write_text("\n".join(lines) + "\n")

    def _start(self, *command: str) -> None:
        with open(self.folder / "daemons.log", "ab") as log:
            self._daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def start(self) -> None:
        """Starts it, and waits until its nodes are idle."""
        at, configuration = self.folder, str(self.folder / "slurm.conf")
        munge = {"key-file": "munge.key", "socket": "munge/socket", "pid-file": "munge/pid", "log-file": "munge/log"}
        munge |= {"seed-file": "munge/seed"}
        self._start("munged", "--foreground", "--force", *(f"--{name}={at / file}" for name, file in munge.items()))
        wait_until((at / "munge" / "socket").exists)
        self._start("slurmctld", "-D", "-i", "-f", configuration)
        for node in NODES:
            self._start("slurmd", "-D", "-N", node, "-f", configuration)
        wait_until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == str(len(NODES)))

    def run(self, *command: str, timeout: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of Slurm's."""
        environment = self.environment | variables
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=timeout, cwd=self.folder
        )

    def begin(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Starts one."""
        environment, output = self.environment | variables, subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output, text=True, cwd=self.folder)

    def jobs(self) -> Sequence[str]:
        """The numbers of the jobs that run."""
        return re.findall(r"\d+", self.run("squeue", "-h", "-o", "%A").stdout)

    def is_idle(self) -> bool:
        """Whether no job has a node, or is about to leave one: a node that one leaves is called idle already."""
        return not self.jobs() and self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() == str(len(NODES))

    def stop(self) -> None:
        """Ends its jobs, and then its daemons, the last one first."""
        self.run("scancel", "--quiet", *self.jobs())
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Slurm]:
    """A cluster that ends with the block, also where it did not come up."""
    cluster = Slurm(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
