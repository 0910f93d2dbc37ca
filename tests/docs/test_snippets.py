"""Every block of code on the site: Python is run, and shell commands are compared with the program's own help.

The pages are those of the site's navigation. Blocks of Python that need an environment of its own (PyTorch, Ray's libraries, a
Rust program) are run by tests that have it (`site_pages.ELSEWHERE`): that with Ray Data by `make libraries`, the others by
`make test`. Those that need more than this machine has
(GPUs, several nodes) get that as a setting (`settings.NEEDED`). Blocks of Rust are parts of programs that cargo compiles and its
tests run (`test_rust_blocks.py`).
"""

from __future__ import annotations

import functools
import re
import shlex
import tomllib
from pathlib import Path

import commands
import pytest
import settings
import site_pages
import snippets
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *site_pages.from_navigation().values()]
#: What becomes of blocks in each language; output of commands and drawings have none, or are `text`.
LANGUAGES = {"python", "sh", "console", "rust", "toml", "yaml", "text", ""}
#: Programs of others, whose options are their own.
OTHERS = {"cd", "chmod", "curl", "docker", "export", "helm", "jq", "kubectl", "pip", "python", "scp", "sha256sum", "strip", "uv", "zcat"}
INLINE = re.compile(r"`(oxiray [^`\n]+)`")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_run_here(page: Path, block: snippets.Block) -> bool:
    return block.language == "python" and site_pages.who_runs(page, block) is None


WITH_PYTHON = [page for page in PAGES if any(is_run_here(page, block) for block in snippets.blocks(page.read_text()))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
def test_python_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    found = snippets.failures(
        page.read_text(),
        tmp_path,
        runs=lambda block: is_run_here(page, block),
        before=lambda block: settings.before(name(page), block.text),
    )
    assert not found, "\n\n".join(found)


def test_what_is_run_elsewhere_or_in_a_setting_is_still_there() -> None:
    for page, part, _ in [*site_pages.ELSEWHERE, *settings.NEEDED]:
        having = [block for block in site_pages.python_of(ROOT / page) if part in block.text]
        assert len(having) == 1, f"{page} has {len(having)} blocks of Python with {part}"
    for page, _, tests in site_pages.ELSEWHERE:
        text = (ROOT / tests).read_text()
        assert "site_pages.run_by(" in text or Path(page).name in text, f"{tests} does not run {page}"


def test_every_block_is_of_a_language_that_is_looked_at() -> None:
    assert len(PAGES) > 90
    found = {(name(page), block.language) for page in PAGES for block in snippets.blocks(page.read_text())}
    assert {(page, language) for page, language in found if language not in LANGUAGES} == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_yaml_and_toml_can_be_read(page: Path) -> None:
    for block in snippets.blocks(page.read_text()):
        if block.language == "yaml":
            assert list(yaml.safe_load_all(block.text))
        elif block.language == "toml":
            assert tomllib.loads(block.text)


def test_each_guide_has_code_that_is_compared() -> None:
    guides = [page for page in PAGES if page.parent.name == "guides"]
    assert guides
    assert [name(page) for page in guides if not any(block.expected for block in snippets.blocks(page.read_text()))] == []


@functools.cache
def help_of(words: tuple[str, ...]) -> str:
    return commands.run(*words, "--help")


def names_within(words: tuple[str, ...]) -> set[str]:
    """The commands that the help of a command lists."""
    listed = re.search(r"^Commands:\n((?:  .*\n|\n)+)", help_of(words), re.MULTILINE)
    return set(re.findall(r"^  ([a-z][\w-]*)", listed.group(1), re.MULTILINE)) if listed else set()


def commands_of_python() -> set[str]:
    from oxiray._cli import PYTHON_COMMANDS

    return set(PYTHON_COMMANDS)


def wrong(line: str) -> str | None:
    """What is not known of a line's commands; None where all is."""
    inner = re.findall(r"[<$]\(([^()]*)\)", line)
    without_inner = re.sub(r"[<$]\([^()]*\)", "INNER", line)
    words = shlex.shlex(re.sub(r"\d*>&\d", "", without_inner), posix=True, punctuation_chars="|&;")
    words.whitespace_split = True
    single: list[list[str]] = [[]]
    for word in words:
        if word and set(word) <= set("|&;"):
            single.append([])
        else:
            single[-1].append(word)
    found = [wrong_command(command) for command in single if command] + [wrong(part) for part in inner]
    return next((told for told in found if told is not None), None)


def wrong_command(words: list[str]) -> str | None:
    """What is not known of one command; None where all is."""
    words = [word for word in words if not re.fullmatch(r"\d*[<>]+.*", word)]
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    if not words:
        return None
    program = words[0]
    if program == "source":
        return None if words[1:] == ["INNER"] else f"source reads {words[1:]}"
    if program in ("srun", "docker") and "oxiray" in words:
        # Its options are its own; what it runs is ours.
        return wrong_command(words[words.index("oxiray") :])
    if program == "ssh":
        return wrong_command(words[2:])
    if program == "make":
        unknown = [word for word in words[1:] if "=" not in word and word not in targets()]
        return f"make has no target {unknown[0]}" if unknown else None
    if program in ("oxiray", "ray"):
        # The alias has a `ray` with the same commands, which are those of Ray's own.
        return wrong_option(words[1:])
    if program == "cargo":
        return None if words[1] in ("build", "install", "run", "doc") else f"cargo has no command {words[1]}"
    if program.startswith("scripts/"):
        return None if (ROOT / program).is_file() else f"there is no {program}"
    return None if program in OTHERS else f"{program} is no known program"


def targets() -> set[str]:
    """What `make` can be asked for: one line may name several."""
    named = re.findall(r"^([\w-]+(?: [\w-]+)*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {target for line in named for target in line.split()}


def wrong_option(words: list[str]) -> str | None:
    own = words[: words.index("--")] if "--" in words else words
    options = [word.partition("=")[0] for word in own if word.startswith("-") and word != "-"]
    if own[:1] == options[:1]:
        command: tuple[str, ...] = ()
    elif own[0] not in names_within(()) | commands_of_python():
        return f"oxiray has no command {own[0]}"
    elif own[0] == "operator":
        return None  # its options are those of a program that the wheel does not have
    else:
        command = (own[0],)
        # A command with commands of its own may have options beside them, as `oxiray dashboard --history`.
        if (within := names_within(command)) and own[1:2] != options[:1]:
            if own[1:2] and own[1] not in within:
                return f"oxiray {own[0]} has no command {own[1]}"
            command = tuple(own[:2])
    known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", help_of(command)))
    unknown = [option for option in options if option not in known]
    return f"oxiray {' '.join(command)} has no {unknown}" if unknown else None


def lines_of_shell(page: Path) -> list[str]:
    found = []
    for block in snippets.blocks(page.read_text()):
        joined = block.text.replace("\\\n", " ")
        if block.language == "sh":
            found += [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
        elif block.language == "console":
            found += [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    # What stands in the text names commands as well; `ID` and such stand for something.
    text = [line for line in INLINE.findall(snippets.FENCE.sub("", page.read_text())) if not re.search(r"[…|]", line)]
    assert [told for line in [*lines_of_shell(page), *text] if (told := wrong(line)) is not None] == []


def test_what_does_not_exist_is_found() -> None:
    assert wrong("oxiray start --head --port=6379") is None
    assert wrong("oxiray begin") == "oxiray has no command begin"
    assert wrong("oxiray start --haed") == "oxiray start has no ['--haed']"
    assert wrong("ssh host oxiray job sumbit -- python x.py --any") == "oxiray job has no command sumbit"
    assert wrong("A=1 make tset") == "make has no target tset"
    assert wrong("make lint fuzz-frames FUZZ_SEED=1") is None
    assert wrong("rm -rf /") == "rm is no known program"
    assert wrong("oxiray dashboard --history /h --once-json | jq .jobs  # all") is None
    assert wrong("oxiray dashboard --hystory /h") == "oxiray dashboard has no ['--hystory']"
    assert wrong("oxiray dashboard token --history=/h") == "oxiray dashboard token has no ['--history']"
    assert wrong("oxiray list tasks | grpe x") == "grpe is no known program"
    assert wrong("export A=$(oxiray dashboard tokn)") == "oxiray dashboard has no command tokn"
    assert wrong("docker run -m 2g IMAGE oxiray hardwear") == "oxiray has no command hardwear"
    assert wrong("ray list tasks --filtre a=b") == "oxiray list has no ['--filtre']"
    assert wrong("scripts/nothing FOLDER &") == "there is no scripts/nothing"


def test_output_that_differs_is_found(tmp_path: Path) -> None:
    page = "```python\nprint(1 + 1)\n```\n\n```text\n{}\n```\n\n```python\nx = 3\n```\n\nText.\n\n```text\nnot output\n```\n"
    assert snippets.failures(page.format("2"), tmp_path) == []
    assert snippets.failures(page.format("3"), tmp_path)[0].startswith("block 1 printed\n2\nand not\n3\n")
    assert "ended with status 1" in snippets.failures("```python\n1 / 0\n```", tmp_path)[0]


def test_lines_of_workers_are_looked_for_anywhere() -> None:
    program = [snippets.Block("python", "f()", "(f pid=...) hello\n"), snippets.Block("python", "g()", None)]
    assert snippets.compared(program, "\x1e\n(f pid=12) hello\n\x1e\n") == []
    assert len(snippets.compared(program, "\x1e\n(f pid=12) other\n\x1e\n")) == 1


#: A heading of troubleshooting that quotes what is printed, or names an error.
QUOTED = re.compile(r'^### "([^\n]+?)"', re.MULTILINE)
NAMED = re.compile(r"^### (`[^\n]+)$", re.MULTILINE)
#: What Python or a library says, and Oxiray passes on.
OF_OTHERS = {"ValueError: assignment destination is read-only"}


def sources() -> str:
    """What the product may print, without the line breaks that its sources put into texts."""
    python = "\n".join(path.read_text() for path in (ROOT / "python" / "oxiray").rglob("*.py"))
    rust = "\n".join(path.read_text() for path in (ROOT / "crates").glob("*/src/**/*.rs") if "tests" not in path.parts)
    joined = re.sub(r'"\n\s*f?"', "", re.sub(r"\\\n\s*", "", f"{python}\n{rust}"))
    return joined.replace('\\"', '"')


def is_printed(quote: str, text: str) -> bool:
    """Whether a text has a quote, where numbers and names that vary count as the sources' braces."""
    parts = re.split(r"\d+|`[^`]*`", quote)
    return all(part.strip() in text for part in parts if len(part.strip()) > 3)


def test_troubleshooting_quotes_what_the_product_prints() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    text = sources()
    quotes = [quote for heading in QUOTED.findall(page) for quote in heading.split('" or "')]
    assert len(quotes) > 15
    assert [quote for quote in quotes if quote not in OF_OTHERS and not is_printed(quote, text)] == []
    assert is_printed("has waited 10 s for", text) and not is_printed("nobody ever says this sentence", text)


def test_troubleshooting_names_errors_that_exist() -> None:
    from oxiray import exceptions

    named = re.findall(r"`(\w+)`", " ".join(NAMED.findall((DOCS / "troubleshooting.md").read_text())))
    assert named and [error for error in named if not hasattr(exceptions, error)] == []
