"""From a model to a structural schema: the part of OpenAPI that Kubernetes takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgoutbox_operator.crd.part import Part

Schema = dict[str, Any]

KEPT = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "maxItems",
)
INT32_MOST = 2**31 - 1


def structural(model: type[Part]) -> Schema:
    """The schema of ``model``.

    An object that may be left out has a default that is written out: ``{}`` would do but for the
    CEL rules, which the API server tries on it before it fills in what is inside.
    """
    generated = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(generated, generated.get("$defs", {}))


def _convert(given: Schema, definitions: Schema) -> Schema:
    merged = _resolve(given, definitions)
    schema = _own_keys(merged)
    if "items" in merged:
        schema["items"] = _convert(merged["items"], definitions)
    if "properties" in merged:
        schema["properties"] = {
            name: _convert(each, definitions) for name, each in merged["properties"].items()
        }
    if "required" in merged:
        schema["required"] = merged["required"]
    return schema | {key: value for key, value in merged.items() if key.startswith("x-kubernetes-")}


def _own_keys(merged: Schema) -> Schema:
    schema: Schema = {key: merged[key] for key in KEPT if key in merged}
    if "description" in schema:
        # The first paragraph is for users, the others are for readers of the model.
        schema["description"] = schema["description"].split("\n\n")[0]
    if "default" in schema:
        _clean_default(schema)
    if "const" in merged:
        schema["enum"] = [merged["const"]]
    if schema.get("type") == "integer":
        fits = schema.get("maximum", INT32_MOST + 1) <= INT32_MOST
        schema["format"] = "int32" if fits else "int64"
    return schema


def _clean_default(schema: Schema) -> None:
    """What may be absent is absent: there is no null."""
    default = schema["default"]
    if isinstance(default, dict):
        schema["default"] = {key: each for key, each in default.items() if each is not None}
    elif default is None:
        del schema["default"]


def _resolve(given: Schema, definitions: Schema) -> Schema:
    """Without references, and without the ``null`` of what may be left out."""
    merged = dict(given)
    if "anyOf" in merged:
        (only,) = (each for each in merged.pop("anyOf") if each.get("type") != "null")
        merged = {**only, **merged}
    if "$ref" in merged:
        name = merged.pop("$ref").removeprefix("#/$defs/")
        merged = {**definitions[name], **merged}
    return merged
