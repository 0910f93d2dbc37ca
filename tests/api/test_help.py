"""`help(ray.init)`, `help(ray.remote)` and `help(ray.method)` list every option with its type, its unit and its default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import pytest
import ray
from oxiray import _init_options, _option_rules as rules

#: Where an entry of a docstring begins.
ENTRY = re.compile(r"^ {4}(?=\w+(?:, \w+)*: )", re.MULTILINE)
#: One or several options that have a type in common, within an entry.
NAMES = re.compile(r"(?:^|; )((?:\w+, )*\w+): ([^.;]+)")
TYPES = re.compile(r"\b(bool|int|float|str|dict|list|callable|RuntimeEnv|JobConfig|LoggingConfig|PlacementGroup|object|None)\b|\"")
#: What an entry says in place of a default, where there is no choice.
SETTLED = ("Without effect", "Removed", "Deprecated", "Not for functions", "The same as")
#: Options that are numbers of something, and by what the reader knows of what.
UNITS = {
    "object_store_memory": "ytes", "_memory": "ytes", "gpu_memory": "ytes", "memory": "ytes", "system_reserved_memory": "ytes",
    "system_reserved_cpu": "CPU", "num_cpus": "rocessors", "num_gpus": "GPU", "max_retries": "often", "max_restarts": "often",
    "max_task_retries": "often", "max_calls": "calls", "max_concurrency": "calls", "max_pending_calls": "calls",
    "num_returns": "references", "priority": "1000",
}  # fmt: skip


def entries(documentation: str) -> dict[str, list[tuple[str, str]]]:
    """The type and the whole entry of each option, each time that it is listed."""
    # A paragraph that is no entry ends the one before.
    cleaned = "\n".join("    " + line if line else line for line in inspect.cleandoc(documentation).splitlines())
    found: dict[str, list[tuple[str, str]]] = {}
    for part in ENTRY.split(cleaned)[1:]:
        text = " ".join(part.split("\n\n")[0].split())
        for names, kind in NAMES.findall(text):
            for name in names.split(", "):
                found.setdefault(name, []).append((kind, text))
    return found


def missing(documentation: str, options: Iterable[str]) -> list[str]:
    """The options that are not listed as they should be, with what is wrong."""
    listed = entries(documentation)
    wrong = []
    for option in options:
        for kind, text in listed.get(option, [("", "")]):
            if not TYPES.search(kind):
                wrong.append(f"{option} has no type: {text!r}")
            elif not any(settled in text for settled in SETTLED) and "default" not in text:
                wrong.append(f"{option} has no default: {text!r}")
            elif option in UNITS and not any(said in text for said in (UNITS[option], *SETTLED)):
                wrong.append(f"{option} does not say {UNITS[option]!r}: {text!r}")
    return wrong


def parameters() -> dict[str, Any]:
    signature = inspect.signature(_init_options.init_options).parameters.values()
    return {one.name: one.default for one in signature if one.kind is not one.VAR_KEYWORD}


def test_init_lists_every_option() -> None:
    assert missing(ray.init.__doc__ or "", [*parameters(), *_init_options._HIDDEN]) == []
    # Those that are visible are in the signature, too, with their defaults.
    assert [one for one in parameters() if one not in inspect.signature(ray.init).parameters] == []


def test_init_tells_the_defaults_that_it_has() -> None:
    wrong = []
    for option, ((_, text), *_) in entries(ray.init.__doc__ or "").items():
        told = re.search(r"\b(True|False|logging\.INFO) by default", text)
        if told is not None and option in parameters():
            expected = {"logging.INFO": 20, "True": True, "False": False}[told.group(1)]
            if parameters()[option] != expected:
                wrong.append(f"{option} is {parameters()[option]!r} by default, and not {expected!r}")
    assert wrong == []


@pytest.mark.parametrize(
    ("function", "table"),
    [("remote", rules.TASK_RULES), ("remote", rules.ACTOR_RULES), ("method", rules.METHOD_RULES)],
    ids=["tasks", "actors", "methods"],
)
def test_decorators_list_every_option(function: str, table: dict[str, Any]) -> None:
    assert missing(getattr(ray, function).__doc__ or "", table) == []


@pytest.mark.parametrize("function", ["remote", "method"])
def test_decorators_list_every_word_that_num_returns_may_be(function: str) -> None:
    ((kind, text),) = entries(getattr(ray, function).__doc__ or "")["num_returns"]
    assert set(re.findall(r'"(\w+)"', kind)) == set(rules.NUM_RETURNS_WORDS)
    assert '"dynamic" is deprecated' in text
    for word in rules.NUM_RETURNS_WORDS:
        rules._check_num_returns("num_returns", word)


def test_no_option_is_listed_that_is_not_there() -> None:
    known = {"init": {*parameters(), *_init_options._HIDDEN}, "remote": {*rules.TASK_RULES, *rules.ACTOR_RULES}}
    for function, options in known.items():
        assert set(entries(getattr(ray, function).__doc__ or "")) - options == set(), function


def test_what_is_missing_is_found() -> None:
    text = """Starts.

    num_cpus: int or None. Processors; by default all.
    memory: int. How much; none by default.
    name, other: str. Texts.
    """
    assert missing(text, ["num_cpus"]) == []
    assert missing(text, ["memory"])[0].startswith("memory does not say 'ytes'")
    assert missing(text, ["other"])[0].startswith("other has no default")
    assert missing(text, ["absent"])[0].startswith("absent has no type")
