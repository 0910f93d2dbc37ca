"""The help of `oxiray` and the completions that it gives to shells: whole, and no wider than a terminal."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import commands
import pytest
from oxiray import _cli

#: Commands of the Python package that print no data, each with what it does.
WITHOUT_JSON = {"kill-actor": "acts", "ray": "makes a wheel", "timeline": "writes JSON to a file"}


def test_each_command_of_python_that_prints_data_prints_it_as_json() -> None:
    found = {name for name, (_, options) in _cli.PYTHON_COMMANDS.items() if "--json" not in options}
    assert found == set(WITHOUT_JSON)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("up", "cluster.yaml"), "Oxiray has no cluster launcher"),
        (("metrics", "launch-prometheus"), "--metrics-export-port=PORT"),
        (("sanity-check",), "oxiray doctor"),
        (("history-server",), "oxiray dashboard --history=DIRECTORY"),
        (("check-open-ports",), "oxiray doctor"),
    ],
)
def test_a_command_of_ray_that_is_not_there_says_what_to_do_instead(words: tuple[str, ...], says: str) -> None:
    told = " ".join(commands.run(*words, check=False).split())
    assert f"`{words[-1] if words[0] == 'metrics' else words[0]}` is a command of Ray's" in told and says in told


def test_the_word_version_is_answered_with_the_option() -> None:
    assert "`version` is no command: `oxiray --version` prints the version" in " ".join(commands.run("version", check=False).split())


@pytest.mark.parametrize(
    ("words", "argument", "says"),
    [
        (("device", "drain"), "<NODE/DEVICE>", "A node's identifier, or the beginning of it"),
        (("drain",), "[NODE]", "The node's identifier, or the beginning of it"),
        (("get",), "<ID>", "Its identifier, or the beginning of it"),
        (("explain",), "<ID>", "or the beginning of it"),
        (("logs",), "--session", "by its name or the beginning of it"),
        (("job", "stop"), "<ID>", "The job's name, or the beginning of it"),
        (("job", "submit"), "--working-dir", "or a .zip file at `s3://bucket/name.zip`"),
    ],
)
def test_help_says_where_the_beginning_of_an_identifier_and_where_a_url_is_enough(words: tuple[str, ...], argument: str, says: str) -> None:
    told = " ".join(commands.run(*words, "--help").split())
    assert says in told.partition(f" {argument} ")[2], told


def test_help_names_every_command_of_jobs() -> None:
    _, _, below = commands.run("job", "--help").partition("Commands:\n")
    listed = re.findall(r"^  ([a-z]+)  +\S", below.partition("\n\n")[0], re.MULTILINE)
    named = re.search(r"status and output: ([a-z, ]+?) hardware ", " ".join(commands.run("--help").split()))
    assert named and set(named[1].split(", ")) == set(listed) - {"help"} != set()


def named_below_help() -> list[str]:
    """The commands of the Python package that the help of the native program names."""
    _, _, below = commands.run("--help").partition("Commands of the Python package `oxiray`:\n")
    return re.findall(r"^  ([a-z-]+)  +\S", below, re.MULTILINE)


def test_help_names_the_commands_that_python_runs() -> None:
    assert named_below_help() == sorted(_cli.PYTHON_COMMANDS)


@pytest.mark.parametrize("words", [(), ("start",), ("job", "submit"), ("list",), ("drain",), ("doctor",), ("logs",)], ids=" ".join)
def test_help_is_no_wider_than_the_terminal(words: tuple[str, ...]) -> None:
    told = commands.on_a_terminal(*words, "--help")
    assert "-h, --help" in told
    assert [line for line in told.splitlines() if len(line) > commands.COLUMNS] == []


def completed(line: str, tmp_path: Path) -> list[str]:
    """What bash offers at the end of a line."""
    script = tmp_path / "completions"
    script.write_text(commands.run("completions", "bash"))
    words = line.split(" ")
    setting = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _oxiray oxiray '{words[-1]}' '{words[-2]}'"
    program = f'source {script}; {setting}; echo "${{COMPREPLY[@]}}"'
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run([bash, "--norc", "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    assert completed("oxiray st", tmp_path) == ["start", "stop", "status", "stack"]
    # The daemon and what it runs are no commands for users.
    assert completed("oxiray d", tmp_path) == ["drain", "drain-node", "device", "dashboard", "debug", "doctor"]
    assert completed("oxiray job sub", tmp_path) == ["submit"]
    assert completed("oxiray start --token", tmp_path) == ["--token-file"]


def test_other_shells_are_given_theirs() -> None:
    assert commands.run("completions", "zsh").startswith("#compdef oxiray")
    assert "complete -c oxiray" in commands.run("completions", "fish")
    assert "possible values: bash" in commands.run("completions", "tcsh", check=False)
