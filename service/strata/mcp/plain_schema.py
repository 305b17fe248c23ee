"""JSON Schemas that every MCP client takes: plain objects, no ``$ref``, no union at the root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_NULL = {"type": "null"}
_UNTOLD = {"title", "default"}


def plain_schema(wanted: type[msgspec.Struct], *, optional_is_null: bool) -> dict[str, Any]:
    """Return the schema of a struct with every reference written out.

    With ``optional_is_null`` a field that may be null says so; without it the null is left unsaid, as
    arguments are left out rather than sent as null.
    """
    schema = msgspec.json.schema(wanted)
    plain = _inlined(schema, schema.get("$defs", {}), optional_is_null=optional_is_null)
    plain.pop("$defs", None)
    return plain


def either(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return one plain schema for values of either: the members of both, required where both require them."""
    joined: dict[str, Any] = {**other, **one}
    types = [name for schema in (one, other) for name in _types(schema)]
    if types:
        distinct = list(dict.fromkeys(types))
        joined["type"] = distinct[0] if len(distinct) == 1 else distinct
    if "properties" in one and "properties" in other:
        mine, theirs = one["properties"], other["properties"]
        shared = {name: either(mine[name], theirs[name]) for name in mine if name in theirs}
        joined["properties"] = {**mine, **theirs, **shared}
    if "items" in one and "items" in other:
        joined["items"] = either(one["items"], other["items"])
    required = [name for name in one.get("required", ()) if name in other.get("required", ())]
    joined.pop("required", None)
    return joined | ({"required": required} if required else {})


def _types(schema: Mapping[str, Any]) -> list[str]:
    named = schema.get("type", [])
    return [named] if isinstance(named, str) else list(named)


def _inlined(node: Mapping[str, Any], definitions: Mapping[str, Any], *, optional_is_null: bool) -> dict[str, Any]:
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return _inlined({**target, **rest}, definitions, optional_is_null=optional_is_null)
    plain: dict[str, Any] = {}
    for key, value in node.items():
        if key in _UNTOLD or key == "$defs":
            continue
        if key == "properties":
            plain[key] = {
                name: _inlined(item, definitions, optional_is_null=optional_is_null) for name, item in value.items()
            }
        elif key == "anyOf":
            continue
        elif isinstance(value, dict):
            plain[key] = _inlined(value, definitions, optional_is_null=optional_is_null)
        else:
            plain[key] = value.replace("``", "`") if key == "description" else value
    if "enum" in plain:
        plain.setdefault("type", "string")
    if "anyOf" in node:
        choices = [_inlined(item, definitions, optional_is_null=optional_is_null) for item in node["anyOf"]]
        plain |= _joined(choices, plain, optional_is_null=optional_is_null)
    return plain


def _joined(choices: list[dict[str, Any]], outer: Mapping[str, Any], *, optional_is_null: bool) -> dict[str, Any]:
    """Return one schema for several of different types: ``type`` becomes a list, keywords are joined."""
    if not optional_is_null:
        choices = [choice for choice in choices if choice != _NULL]
    joined: dict[str, Any] = {}
    for choice in choices:
        joined |= {key: value for key, value in choice.items() if key not in {"type", "enum"} and key not in outer}
    types = [choice["type"] for choice in choices]
    enums = [item for choice in choices for item in choice.get("enum", ())]
    if enums:
        joined["enum"] = [*enums, None] if "null" in types else enums
    joined["type"] = types[0] if len(types) == 1 else types
    return joined
