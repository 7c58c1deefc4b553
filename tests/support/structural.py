"""What an API server does with an object of a custom resource: defaults, schema, CEL rules."""

from __future__ import annotations

import copy
import re
from typing import Any

import celpy
from celpy.adapter import json_to_cel

Schema = dict[str, Any]
KINDS = {"object": dict, "array": list, "string": str, "integer": int}
ENVIRONMENT = celpy.Environment()


def admit(schema: Schema, given: Any, old: Any = None) -> tuple[Any, list[str]]:
    """The object as it is stored, and everything that it would be refused for."""
    stored = with_defaults(schema, copy.deepcopy(given))
    wrong = list(violations(schema, stored))
    # Rules are only tried on what fits the schema.
    return stored, wrong or list(broken_rules(schema, stored, old))


def with_defaults(schema: Schema, value: Any) -> Any:
    if isinstance(value, dict):
        for name, each in schema.get("properties", {}).items():
            if name not in value and "default" in each:
                value[name] = copy.deepcopy(each["default"])
            if name in value:
                value[name] = with_defaults(each, value[name])
    return value


def violations(schema: Schema, value: Any, path: str = "") -> list[str]:
    kind = KINDS[schema["type"]]
    if not isinstance(value, kind) or isinstance(value, bool):
        return [f"{path}: not of type {schema['type']}"]
    wrong = []
    if "enum" in schema and value not in schema["enum"]:
        wrong.append(f"{path}: not one of {schema['enum']}")
    if isinstance(value, int) and not (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
    ):
        wrong.append(f"{path}: out of bounds")
    if isinstance(value, str):
        wrong += _of_text(schema, value, path)
    if isinstance(value, list):
        wrong += _of_list(schema, value, path)
    if isinstance(value, dict):
        wrong += _of_object(schema, value, path)
    return wrong


def _of_object(schema: Schema, value: dict[str, Any], path: str) -> list[str]:
    missing = [name for name in schema.get("required", []) if name not in value]
    wrong = [f"{path}.{name}: missing" for name in missing]
    for name, each in schema.get("properties", {}).items():
        if name in value:
            wrong += violations(each, value[name], f"{path}.{name}")
    return wrong


def _of_text(schema: Schema, value: str, path: str) -> list[str]:
    wrong = []
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        wrong.append(f"{path}: too short or too long")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        wrong.append(f"{path}: does not match {schema['pattern']}")
    return wrong


def _of_list(schema: Schema, value: list[Any], path: str) -> list[str]:
    wrong = []
    if len(value) > schema.get("maxItems", len(value)):
        wrong.append(f"{path}: too many items")
    if schema.get("x-kubernetes-list-type") == "set" and len(set(value)) < len(value):
        wrong.append(f"{path}: duplicates")
    for index, each in enumerate(value):
        wrong += violations(schema["items"], each, f"{path}[{index}]")
    return wrong


def broken_rules(schema: Schema, value: Any, old: Any = None) -> list[str]:
    """The messages of the rules that do not hold, here and below."""
    broken = [
        rule["message"]
        for rule in schema.get("x-kubernetes-validations", [])
        if not ("oldSelf" in rule["rule"] and old is None) and not holds(rule["rule"], value, old)
    ]
    if isinstance(value, dict):
        for name, each in schema.get("properties", {}).items():
            if name in value:
                before = old.get(name) if isinstance(old, dict) else None
                broken += broken_rules(each, value[name], before)
    return broken


def holds(rule: str, value: Any, old: Any = None) -> bool:
    """One rule, by cel-python."""
    program = ENVIRONMENT.program(ENVIRONMENT.compile(rule))
    bound = {"self": json_to_cel(value)} | ({} if old is None else {"oldSelf": json_to_cel(old)})
    return bool(program.evaluate(bound))


def every_node(schema: Schema, path: str = "") -> list[tuple[str, Schema]]:
    """The schema and all those inside it."""
    nodes = [(path, schema)]
    for name, each in schema.get("properties", {}).items():
        nodes += every_node(each, f"{path}.{name}")
    if "items" in schema:
        nodes += every_node(schema["items"], f"{path}[]")
    return nodes
