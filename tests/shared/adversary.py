"""What a worker gets that tries everything in order to open a device which it was not granted.

`python tests/shared/adversary.py --write docs/device-adversary.md` runs it as root: in each mode of isolation, as root and as
a plain user, and writes the table. The machine is a recorded one with two GPUs whose nodes have the numbers of `/dev/full` and
`/dev/zero`, which open wherever nothing refuses that.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import fenced

NOBODY = fenced.NOBODY
MODES = ("variable", "watch", "fence", "require")
USERS = ("root", "nobody")
#: What a fence holds against: each is a way to open the node, and what is tried.
HELD = {
    "by_name": "by its name",
    "symbolic_link": "by a symbolic link to it",
    "hard_link": "by a hard link to it",
    "own_node": "by a node of the same number that it makes itself",
    "path_descriptor": "by `/proc/self/fd` of a descriptor that was opened with `O_PATH`",
    "other_root": "by `/proc/self/root`",
    "in_thread": "in a thread",
    "after_setsid": "in a child after `setsid`",
    "grandchild": "in a child of a child, another program",
    "user_namespace": "in a user namespace of its own",
    "bind_mount": "in a mount namespace of its own, where the folder is mounted elsewhere",
}
#: What no fence holds against, as docs/security.md says.
NOT_HELD = {
    "passed": "by a descriptor that the driver, which is not fenced, passes over a socket",
    "left_cgroup": "after leaving its control group, which only root may",
}

#: Run as the user in question: prints what a task finds, or why there is no cluster.
PROGRAM = '''
import errno, json, os, socket, stat, subprocess, sys, threading
import ray

mode, host, folder = sys.argv[1:]

OPENING = """
import errno, os, sys
try:
    os.close(os.open(sys.argv[1], os.O_RDWR)); print("opened")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@ray.remote(num_gpus=1)
def tries(host, folder, server):
    other = f"{host}/dev/nvidia{1 - int(ray.get_gpu_ids()[0])}"

    def errors(act):
        try:
            return act()
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def opened(path):
        os.close(os.open(path, os.O_RDWR))
        return "opened"

    def made(make, name):
        def act():
            path = os.path.join(folder, name)
            make(path)
            return opened(path)

        return errors(act)

    def printed(*command):
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout.strip() or "not possible here"

    child = [sys.executable, "-c", OPENING]
    found = {"by_name": errors(lambda: opened(other))}
    found["symbolic_link"] = made(lambda path: os.symlink(other, path), "link")
    found["hard_link"] = made(lambda path: os.link(other, path), "hard")
    number = os.stat(other).st_rdev
    found["own_node"] = made(lambda path: os.mknod(path, stat.S_IFCHR | 0o666, number), "node")
    held = os.open(other, os.O_PATH)
    found["path_descriptor"] = errors(lambda: opened(f"/proc/self/fd/{held}"))
    os.close(held)
    found["other_root"] = errors(lambda: opened(f"/proc/self/root{other}"))
    told = []
    thread = threading.Thread(target=lambda: told.append(errors(lambda: opened(other))))
    thread.start()
    thread.join()
    found["in_thread"] = told[0]
    setsid = f"import os\\nif os.fork() == 0:\\n    os.setsid()\\n    exec({OPENING!r})\\nelse:\\n    os.wait()"
    found["after_setsid"] = printed(sys.executable, "-c", setsid, other)
    found["grandchild"] = printed("sh", "-c", 'sh -c \\'"$@"\\' sh "$@"', "sh", *child, other)
    found["user_namespace"] = printed("unshare", "--user", "--map-root-user", *child, other)
    name = os.path.basename(other)
    mounts = f'mkdir -p {folder}/elsewhere && mount --bind {host}/dev {folder}/elsewhere && exec "$@"'
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    found["bind_mount"] = printed(*unshare, "sh", "-c", mounts, "sh", *child, f"{folder}/elsewhere/{name}")

    def passed():
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(server)
            stream.sendall(other.encode())
            _, descriptors, *_ = socket.recv_fds(stream, 16, 1)
        os.read(descriptors[0], 1)
        return "opened"

    found["passed"] = errors(passed)

    def left():
        for line in open("/proc/self/mountinfo"):
            before, _, after = line.partition(" - ")
            options = after.split()
            if options[0] == "cgroup2" or (options[0] == "cgroup" and "devices" in options[2].split(",")):
                with open(os.path.join(before.split()[4], "cgroup.procs"), "w") as procs:
                    procs.write(str(os.getpid()))
        return opened(other)

    found["left_cgroup"] = errors(left)
    return found


server = os.path.join(folder, "passes")
listening = socket.socket(socket.AF_UNIX)
listening.bind(server)
listening.listen()


def passes():
    stream, _ = listening.accept()
    path = stream.recv(4096).decode()
    held = os.open(path, os.O_RDWR)
    socket.send_fds(stream, [b"x"], [held])


threading.Thread(target=passes, daemon=True).start()
try:
    ray.init(num_cpus=2, device_isolation=mode, logging_level="ERROR")
except Exception as error:
    print(json.dumps({"refused": str(error)}))
    sys.exit()
found = ray.get(tries.remote(host, folder, server), timeout=100)
print(json.dumps(found))
'''


def tried(mode: str, user: str) -> dict[str, str]:
    """What each way comes to, or `refused` with the reason where there is no cluster in that mode."""
    with tempfile.TemporaryDirectory(prefix="adversary-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        host = fenced.recorded(folder)
        own = folder / "own"
        own.mkdir()
        command = [sys.executable, "-c", PROGRAM, mode, str(host), str(own)]
        if user == "nobody":
            os.chown(own, NOBODY, NOBODY)
            command = fenced.held(user, command)
        variables = {**os.environ, "OXIRAY_HOST_ROOT": str(host), "RAY_TMPDIR": str(own), "HOME": str(own)}
        done = subprocess.run(command, env=variables, cwd=own, capture_output=True, text=True, timeout=150, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{mode}, {user}: {done.stderr}")
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return found


def table(found: dict[tuple[str, str], dict[str, str]]) -> str:
    """What came of each way, as Markdown."""
    columns = [(mode, user) for user in USERS for mode in MODES]
    head = "| way | " + " | ".join(f"{mode}, {user}" for mode, user in columns) + " |"
    rows = [head, "|---" * (len(columns) + 1) + "|"]
    for ways, told in ((HELD, ""), (NOT_HELD, " (not held)")):
        for way, words in ways.items():
            cells = [found[column].get(way, "no cluster") for column in columns]
            rows.append(f"| {words}{told} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


PAGE = """# What an adversary gets

A worker with one of two GPUs tries to open the other one's device node. This table was written by
`python tests/shared/adversary.py --write docs/device-adversary.md`, as root on Linux {kernel}, in each mode of
[`--device-isolation`](accelerators.md); `tests/runtime/test_adversary.py` does the same and fails where a fence is overcome.
`opened` means that nothing refused it, an error that the kernel did: `EPERM` is a control group's, `EACCES` Landlock's.

{table}

`variable` and `watch` refuse nothing; `watch` tells of what was opened, and ends it with `--device-violations=end`. What stands
as not held is held by no fence: whoever is root, or has a helper outside of the fence, goes around it ([security](security.md)).
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    found = {(mode, user): tried(mode, user) for user in USERS for mode in MODES}
    for (mode, user), outcome in found.items():
        if "refused" in outcome:
            print(f"{mode}, {user}: {outcome['refused']}")
    page = PAGE.format(kernel=platform.release(), table=table(found))
    print(page)
    if given.write:
        given.write.write_text(page)


if __name__ == "__main__":
    main()
