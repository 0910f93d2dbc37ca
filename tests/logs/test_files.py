"""What workers print is in files, whoever listens: under Ray's names, within limits, and after the session's end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from oxiray._cli import native_binary
from printing import of_worker, program
from watching import wait_until

FIRST_LINE = re.compile(r"\A:job_id:[0-9a-f]{8}\n")


@pytest.mark.parametrize("listens", [True, False])
def test_lines_are_kept_whether_or_not_the_driver_listens(tmp_path: Path, listens: bool) -> None:
    body = f"""
        import ray, sys
        ray.init(num_cpus=1, log_to_driver={listens})
        @ray.remote
        def f():
            print("said")
            print("told", file=sys.stderr)
        ray.get(f.remote())
        """
    printed, errors = program(tmp_path, body)
    assert (("said" in printed), ("told" in errors)) == (listens, listens)
    logs = next(tmp_path.glob("oxiray-*/logs/latest")).resolve()
    for ending, line in (("out", "said"), ("err", "told")):
        (file,) = logs.glob(f"worker-*.{ending}")
        assert re.fullmatch(rf"worker-[0-9a-f]{{56}}-[0-9a-f]{{8}}-\d+\.{ending}", file.name)
        text = file.read_text()
        assert FIRST_LINE.match(text) and text.endswith(f"\n{line}\n"), text
    rows = [json.loads(line) for line in (logs / "index.jsonl").read_text().splitlines()]
    last = {row["file"]: row for row in rows}
    assert {row["stream"] for row in last.values()} == {"out", "err"}
    assert all(row["till_ms"] >= row["from_ms"] and row["name"] == "f" for row in last.values()), rows


def test_a_full_file_is_set_aside(tmp_path: Path) -> None:
    body = """
        import ray
        ray.init(num_cpus=1, log_to_driver=False)
        @ray.remote
        def f():
            for number in range(30_000): print(f"line {number:06}")
        ray.get(f.remote())
        """
    program(tmp_path, body, RAY_ROTATION_MAX_BYTES="100000", RAY_ROTATION_BACKUP_COUNT="2")
    logs = next(tmp_path.glob("oxiray-*/logs/latest")).resolve()
    names = sorted(path.name for path in logs.glob("worker-*.out*"))
    assert [name.rpartition(".out")[2] for name in names] == ["", ".1", ".2"]
    texts = [(logs / name).read_text() for name in (names[2], names[1], names[0])]
    # A read of a pipe may come on top.
    assert all(len(text) < 100_000 + 70_000 for text in texts)
    lines = [line for text in texts for line in text.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number:06}" for number in range(30_000 - len(lines), 30_000)], "no line is lost or doubled"
    assert re.match(r":job_id:\w+\n\[oxiray\] the first \d+ bytes .* are not kept any more\n", texts[2]), texts[2][:200]


def test_nothing_is_kept_where_it_is_switched_off(tmp_path: Path) -> None:
    body = """
        import ray
        ray.init(num_cpus=1)
        @ray.remote
        def f(): print("shown")
        ray.get(f.remote())
        """
    printed, _ = program(tmp_path, body, OXIRAY_WORKER_LOGS="0")
    assert "shown" in printed
    assert not list(tmp_path.glob("oxiray-*/logs/*/worker-*"))


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: Path) -> None:
    """What is written to instead is a folder, which fails as a full disk does, whoever asks."""
    body = """
        import os, ray
        from pathlib import Path
        ray.init(num_cpus=1)
        logs = next(Path(os.environ["RAY_TMPDIR"]).glob("oxiray-*/logs/latest")).resolve()
        @ray.remote
        class A:
            def name(self):
                context = ray.get_runtime_context()
                return f"worker-{context.get_worker_id()}-{context.get_job_id()}-{os.getpid()}.out"
            def speak(self, number): print(f"line {number}")
        a = A.remote()
        (logs / ray.get(a.name.remote())).mkdir()
        number = 0
        while "cannot be written to" not in (logs / "daemon.log").read_text():
            ray.get(a.speak.remote(number))
            number += 1
        # Each is written by itself, but where the machine has much else to do.
        for number in range(number, number + 100): ray.get(a.speak.remote(number))
        """
    printed, _ = program(tmp_path, body)
    lines = [line.rpartition(") ")[2] for line in printed.splitlines()]
    assert len(lines) > 100 and lines == [f"line {number}" for number in range(len(lines))]
    told = next(tmp_path.glob("oxiray-*/logs/latest/daemon.log")).read_text()
    assert told.count("cannot be written to: ") == 2, "once when it happens, and how often at the end"
    assert re.search(r"logs could not be written \d+ times", told), told


def test_the_lines_of_a_worker_that_crashed_are_there_when_its_error_is(tmp_path: Path) -> None:
    body = """
        import os, ray, re
        ray.init(num_cpus=1, log_to_driver=False)
        @ray.remote(max_retries=0)
        def leave():
            for number in range(20_000): print(number)
            os._exit(7)
        for _ in range(5):
            try: ray.get(leave.remote())
            except ray.exceptions.WorkerCrashedError as error: text = str(error)
            file = re.search(r"its last output is in (\\S+)", text)[1]
            assert open(file).read().endswith("19999\\n"), file
        """
    program(tmp_path, body)


def test_a_session_that_has_ended_is_read_by_its_name(tmp_path: Path) -> None:
    body = """
        import ray
        ray.init(num_cpus=1, log_to_driver=False)
        @ray.remote
        def f(word): print(word)
        ref = f.remote("first")
        ray.get([ref, f.remote("second")])
        print(ref.task_id().hex())
        """
    printed, _ = program(tmp_path, body)
    task = printed.split()[-1]
    logs = next(tmp_path.glob("oxiray-*/logs/latest")).resolve()

    def oxiray(*words: str) -> subprocess.CompletedProcess[str]:
        own = {**os.environ, "OXIRAY_TMPDIR": str(tmp_path)}
        return subprocess.run([str(native_binary()), "logs", *words], capture_output=True, text=True, check=False, env=own)

    done = oxiray(f"--session={logs.name}", "task", task)
    assert done.stdout == "first\n", done
    assert oxiray(f"--session={logs.name[:-4]}", "task", task).stdout == "first\n", "the beginning of the only such name is enough"
    (logs.parent / f"{logs.name[:-4]}0000").mkdir()
    either = oxiray(f"--session={logs.name[:-4]}")
    assert either.returncode == 1 and "may be any of 2 identifiers" in either.stderr and logs.name in either.stderr
    listed = oxiray(f"--session={logs.name}").stdout.split()
    assert {"daemon.log", "index.jsonl"} < set(listed)
    unknown = oxiray("--session=another")
    assert unknown.returncode == 1 and logs.name in unknown.stderr
    for outside in ("../../../../etc/passwd", "/etc/passwd", f"../{logs.name}/daemon.log"):
        done = oxiray(f"--session={logs.name}", outside)
        assert (done.returncode, done.stdout) == (1, ""), done


def test_a_driver_that_is_killed_leaves_its_tasks_lines(tmp_path: Path) -> None:
    own = {**os.environ, "OXIRAY_TMPDIR": str(tmp_path), "OXIRAY_INTERPRETER": sys.executable}

    def oxiray(*words: str) -> str:
        done = subprocess.run([str(native_binary()), *words], capture_output=True, text=True, check=False, env=own)
        assert done.returncode == 0, done
        return done.stdout

    oxiray("start", "--head", "--num-cpus=3")
    try:
        text = """
            import os, ray, signal
            ray.init(address="auto")
            @ray.remote
            def f(number): print(f"line of {number}", flush=True)
            refs = [f.remote(number) for number in range(3)]
            ray.get(refs)
            os.write(1, (" ".join(ref.task_id().hex() for ref in refs) + "\\n").encode())
            os.kill(os.getpid(), signal.SIGKILL)
            """
        command = [sys.executable, "-c", textwrap.dedent(text)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=own, timeout=120)
        tasks = next(line for line in done.stdout.splitlines() if len(line.split()) == 3 and len(line) > 140).split()
        assert [oxiray("logs", "task", task) for task in tasks] == [f"line of {number}\n" for number in range(3)]
        job = tasks[0][-8:]
        wait_until(lambda: all(row["ended_ms"] for row in of_worker(json.loads(oxiray("logs", "job", job, "--json")))))
        assert sorted(re.findall(r"line of \d", oxiray("logs", "job", job))) == [f"line of {number}" for number in range(3)]
    finally:
        oxiray("stop")
