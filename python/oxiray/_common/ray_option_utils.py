"""The tables of options that remote functions and actors take, for compatibility."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oxiray import _missing, _option_rules


@dataclass
class Option:
    """What a value of an option may be."""

    type_constraint: Any = None
    value_constraint: Any = None
    default_value: Any = None

    def validate(self, keyword: str, value: Any) -> None:
        """Raises `TypeError` or `ValueError` where `value` is none for the option `keyword`."""
        if self.type_constraint is not None and not isinstance(value, self.type_constraint):
            raise TypeError(
                f"The type of keyword '{keyword}' must be {self.type_constraint}, but received type {type(value)}"
            )
        if self.value_constraint is not None:
            self.value_constraint(keyword, value)


#: Options that are set where nothing is said of them.
_DEFAULTS: dict[str, Any] = {"max_calls": 0, "num_returns": None, "retry_exceptions": False, "max_restarts": 0, "max_task_retries": 0}
_DEFAULTS |= {"max_pending_calls": -1, "get_if_exists": False, "enable_task_events": True, "placement_group": "default"}
_DEFAULTS |= {"placement_group_bundle_index": -1}


def _table(rules: dict[str, _option_rules.Rule]) -> dict[str, Option]:
    return {name: Option(rule.types, rule.check, _DEFAULTS.get(name)) for name, rule in rules.items()}


task_options = _table(_option_rules.TASK_RULES)
actor_options = _table(_option_rules.ACTOR_RULES)
valid_options = {**task_options, **actor_options}


def validate_task_options(options: dict[str, Any], in_options: bool, is_generator_callable: bool | None = None, **_: Any) -> None:
    """Raises what `remote(**options)` of a function raises."""
    _option_rules.check_keywords(options, _option_rules.TASK_RULES, "remote functions")
    _option_rules.check_task(options, in_options=in_options, is_generator=bool(is_generator_callable))


def validate_actor_options(options: dict[str, Any], in_options: bool) -> None:
    """Raises what `remote(**options)` of a class raises."""
    _option_rules.check_keywords(options, _option_rules.ACTOR_RULES, "actors")
    _option_rules.check_actor(options, options, in_options=in_options)


def update_options(original_options: dict[str, Any], new_options: dict[str, Any]) -> dict[str, Any]:
    """The options together, where the new ones win."""
    return {**original_options, **new_options}


__all__ = [
    "Option",
    "actor_options",
    "task_options",
    "update_options",
    "valid_options",
    "validate_actor_options",
    "validate_task_options",
]

__getattr__ = _missing.attributes(__name__)
