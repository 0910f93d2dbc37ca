"""The documentation as a site: it is built without a warning, and its own search finds the pages that have the answers."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import site_pages

ROOT = Path(__file__).resolve().parent.parent.parent
#: The environment that `make` puts mkdocs into.
TOOLS = ROOT / ".build" / "docs" / "bin"
#: How many of the pages that the search shows somebody looks at.
LOOKED_AT = 3

#: What newcomers ask, as they type it into the search; a page that has the answer, and the words there that are the answer.
QUESTIONS = [
    ("how do I install with pip", "install.html", "pip install dist/oxiray-*.whl"),
    ("drop-in alias import ray", "install.html", "pip install ./python/ray_alias"),
    ("package requires ray pip replaces alias", "install.html", "pip install --no-deps PACKAGE"),
    ("first program quickstart", "first-steps.html", "ray.init(num_cpus=4, num_gpus=2)"),
    ("what is missing compared to Ray", "coming-from-ray.html", "Ray Serve (ray.serve)"),
    ("is there a dashboard", "coming-from-ray.html", "Dashboard, and its HTTP endpoints"),
    ("run a function in parallel", "guides/tasks.html", "double.remote(21) returns an ObjectRef at once"),
    ("retry a task that failed", "guides/tasks.html", "max_retries=2, retry_exceptions=[ConnectionError]"),
    ("restart an actor after it died", "guides/actors.html", "max_restarts says how often an actor is made again"),
    ("named actor get_actor namespace", "guides/actors.html", "Names belong to a namespace"),
    ("share a GPU between processes fraction", "guides/devices.html", "lets four processes share one GPU"),
    ("limit GPU memory", "guides/devices.html", 'gpu_memory="8GiB" asks for so much memory of one GPU'),
    ("several machines cluster start join token", "guides/clusters.html", "oxiray start --address=10.0.0.1:6379 --token-file=-"),
    ("submit a job", "guides/jobs.html", "oxiray job submit --working-dir . -- python train.py"),
    ("where are the log files", "guides/logging.html", "/tmp/oxiray-<uid>/logs/latest"),
    ("size of object store memory", "guides/sizing.html", "30 % of the available memory"),
    ("docker container memory limit", "guides/sizing.html", "Oxiray reads the limits of the control groups"),
    ("docker run --gpus image", "containers.html", "the image needs no CUDA for that"),
    ("supported Python versions glibc", "versions.html", "CPython 3.10 or newer"),
    ("out of memory worker killed", "guides/sizing.html", "before the kernel ends something else"),
    ("task is not schedulable", "troubleshooting.html", "No node can ever meet the request"),
    ("WorkerCrashedError", "troubleshooting.html", "names the log file with the stack"),
    ("ActorUnavailableError", "troubleshooting.html", "Set max_task_retries if it is safe to run the call twice"),
    ("RuntimeEnvSetupError pip failed", "troubleshooting.html", "Try the same packages with pip on that node"),
    ("s3 credentials AWS_ACCESS_KEY_ID spill", "troubleshooting.html", "The daemon, not your program, needs the credentials"),
    ("srun symmetric-run slurm job but no step", "troubleshooting.html", "Write srun oxiray symmetric-run -- python train.py"),
    ("standby head etcd takes over", "guides/clusters.html", "becomes the head about 3.5 s after the other one was killed"),
    ("install packages for a task runtime_env pip", "guides/environments.html", '{"pip": ["requests==2.32.3"]}'),
    ("train a model with PyTorch checkpoint", "guides/training.html", "TorchTrainer makes the workers one process group"),
    ("priority of tasks preemption", "guides/priorities.html", "A priority is a whole number from -1000 to 1000"),
    ("environment variable RAY_TMPDIR", "environment-variables.html", "RAY_TMPDIR"),
    ("ray.init options", "reference/api/ray.html", "object_store_memory: int or None."),
    ("oxiray start port option", "reference/commands.html", "listens at this port for nodes of other machines"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The site, built as `make docs` does: a dead link within it, or a page that is in no menu, is an error."""
    assert (TOOLS / "mkdocs").exists(), "run `make ready-to-test`, or `make docs`"
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"OXIRAY_SITE_PYTHON": sys.executable, "NO_MKDOCS_2_WARNING": "1"}
    command = [TOOLS / "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder


class _Reader(HTMLParser):
    """Collects what a page links to, its anchors, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors.add(given.get("id") or "")
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        elif tag in ("script", "img") and given.get("src"):
            self.fetched.append(given["src"] or "")
        elif tag == "link" and given.get("rel") == "stylesheet":
            self.fetched.append(given.get("href") or "")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Reader]:
    found = {}
    for path in site.rglob("*.html"):
        found[path.relative_to(site).as_posix()] = reader = _Reader()
        reader.feed(path.read_text())
    assert len(found) > 60
    return found


def dead_links(pages: dict[str, _Reader], site: Path) -> list[str]:
    dead = []
    for page, reader in pages.items():
        for link in [*reader.links, *reader.fetched]:
            name, _, fragment = link.partition("#")
            if re.match(r"[a-z]+:", link) or page == "404.html":
                continue
            target = (site / page).parent.joinpath(name).resolve() if name else site / page
            if target.is_dir():
                target = target / "index.html"
            read = pages.get(target.relative_to(site).as_posix())
            if not target.exists() or (fragment and read is not None and html.unescape(fragment) not in read.anchors):
                dead.append(f"{page}: {link}")
    return dead


def test_no_link_within_the_site_is_dead(site: Path, pages: dict[str, _Reader]) -> None:
    assert dead_links(pages, site) == []
    # What checks finds what is dead.
    broken = _Reader()
    broken.feed('<a href="nowhere.html">x</a> <a href="index.html#nothing">y</a> <a href="index.html">z</a>')
    assert dead_links(pages | {"broken.html": broken}, site) == ["broken.html: nowhere.html", "broken.html: index.html#nothing"]


def test_nothing_is_fetched_from_other_hosts(pages: dict[str, _Reader]) -> None:
    assert [f"{page}: {link}" for page, reader in pages.items() for link in reader.fetched if "//" in link] == []


def test_the_search_finds_the_answers_to_what_newcomers_ask(site: Path, pages: dict[str, _Reader]) -> None:
    asked = json.dumps([question for question, _, _ in QUESTIONS])
    command = [TOOLS / "python", Path(__file__).with_name("rank.py"), site / "search" / "search_index.json"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    wrong = []
    for (question, page, answer), found in zip(QUESTIONS, json.loads(done.stdout), strict=True):
        if page not in found[:LOOKED_AT]:
            wrong.append(f"{question}: {page} is not among {found[:6]}")
        if " ".join(answer.split()) not in " ".join("".join(pages[page].texts).split()):
            wrong.append(f"{question}: {page} does not say {answer!r}")
    assert not wrong, "\n".join(wrong)
    assert len(QUESTIONS) >= 20


def test_tests_of_code_look_at_every_page_of_the_site(pages: dict[str, _Reader]) -> None:
    """All but those that the program writes of itself, with signatures and help texts for code."""
    looked_at = {re.sub(r"(?:README|(\w+))\.md$", lambda match: f"{match[1] or 'index'}.html", page) for page in site_pages.from_navigation()}
    written = {page for page in pages if page.startswith("reference/api")} | {"reference/commands.html", "404.html"}
    assert looked_at == set(pages) - written


def test_the_references_are_those_of_the_program(pages: dict[str, _Reader]) -> None:
    commands = "".join(pages["reference/commands.html"].texts)
    for words in ("oxiray job submit", "oxiray logs", "oxiray device undrain", "--token-file <FILE>"):
        assert words in commands, words
    core = "".join(pages["reference/api/ray.html"].texts)
    for words in ("ray.get_runtime_context", "ignore_reinit_error", "max_restarts", "def put"):
        assert words in core, words
