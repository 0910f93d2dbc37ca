"""Three hosts with addresses of their own: network namespaces on one switch, each with its own sessions.

They need root and the `ip` command, as a test machine has them; who is not root cannot make them, and is told so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

#: How long a daemon may take to serve, in seconds.
_START_LIMIT = 30.0


def run(*words: str) -> None:
    """Runs a command that must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


class Hosts:
    """`count` namespaces, of which the first one's daemon is to be the head."""

    def __init__(self, folder: Path, count: int = 3, lease: float = 2.0) -> None:
        self._folder = folder
        self._lease = lease
        self._prefix = f"oxi{os.getpid() % 100000}"
        self._daemons: dict[int, subprocess.Popen[bytes]] = {}
        self.names = [f"{self._prefix}h{index}" for index in range(count)]
        self._switch = f"{self._prefix}s"
        run("ip", "netns", "add", self._switch)
        run("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
        run("ip", "-n", self._switch, "link", "set", "switch", "up")
        for index, name in enumerate(self.names):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{index}", "netns", self._switch)
            run("ip", "-n", self._switch, "link", "set", f"p{index}", "master", "switch", "up")
            run("ip", "-n", name, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")

    def address(self, index: int) -> str:
        """The host's IP address."""
        return f"10.77.0.{index + 1}"

    def folder(self, index: int) -> Path:
        """Where the host's sessions are."""
        made = self._folder / f"h{index}"
        made.mkdir(exist_ok=True)
        return made

    def command(self, index: int, *words: str) -> list[str]:
        """The command, run on the host, where the folders of the others cannot be seen."""
        nothing = self._folder / "nothing"
        nothing.mkdir(exist_ok=True)
        others = [str(self.folder(other)) for other in range(len(self.names)) if other != index]
        hide = " && ".join(f'mount --bind "{nothing}" "{other}"' for other in others)
        own = ["env", f"OXIRAY_TMPDIR={self.folder(index)}", *words]
        return ["ip", "netns", "exec", self.names[index], "sh", "-c", f'{hide} && exec "$@"', "sh", *own]

    def token_file(self) -> Path:
        """What lets the others in."""
        return next(self.folder(0).glob("oxiray-*/session_*/join-token"))

    def _copied_token(self, index: int) -> Path:
        copy = self.folder(index) / "token"
        copy.touch(mode=0o600)
        copy.write_text(self.token_file().read_text())
        return copy

    def start(self, index: int, *options: str) -> None:
        """Starts the host's daemon: the head's on the first one."""
        own = ["--node-ip-address", self.address(index), "--block", *options]
        if index == 0:
            own += ["--head", "--port", "6379", "--node-lease", str(self._lease)]
        else:
            # The first host is handed the token, the others have a file.
            file = "-" if index == 1 else str(self._copied_token(index))
            own += [f"--address={self.address(0)}:6379", "--token-file", file]
        with open("/dev/null" if index != 1 else self.token_file()) as told:
            process = subprocess.Popen(
                self.command(index, sys.executable, "-m", "oxiray._cli", "start", *own),
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        self._daemons[index] = process
        until = time.monotonic() + _START_LIMIT
        assert process.stdout is not None
        for line in process.stdout:
            if b"started" in line:
                return
            assert time.monotonic() < until, "the daemon did not start in time"
        raise AssertionError(f"the daemon of host {index} ended with {process.wait()}")

    def kill(self, index: int) -> None:
        """Kills the host's daemon, as nothing can be prepared for."""
        self._daemons[index].kill()
        self._daemons[index].wait()

    def program(self, text: str, *arguments: str, host: int = 0, limit: float = 120.0) -> str:
        """Runs a Python program on a host, the head's where none is said; what it prints."""
        command = self.command(host, sys.executable, "-c", text, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def end(self) -> None:
        """Ends all daemons and removes the hosts."""
        for process in self._daemons.values():
            process.kill()
            process.wait()
        for name in [*self.names, self._switch]:
            subprocess.run(["ip", "netns", "del", name], check=False)
