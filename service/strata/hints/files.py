"""Hint files: YAML, JSON or JSON Lines to hints and back, with errors that name entry and line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import yaml

from strata.errors import INVALID_REQUEST, StrataError
from strata.hints.schemas import MAX_HINTS_PER_CALL, HintEntry, HintInput
from strata.hints.validate import valid_hint
from strata.text.normalise import decode_bytes

HintFormat = Literal["yaml", "json", "jsonl"]
SUFFIXES: dict[str, HintFormat] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
MAX_FILE_BYTES = 64 * 1024 * 1024
_MAX_ERRORS = 20
_FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(HintInput))
_NOT_A_LIST = "A hint file is a list of hints, or an object with one under `hints`."
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class _Raw:
    """One entry as it stands in the file; ``line`` counts from 1, 0 where the format has no lines."""

    value: object
    line: int = 0
    problem: str = ""


def parse_hints(data: bytes, file_format: HintFormat) -> list[HintInput]:
    """Read a hint file: a list of hints, or an object with the list under ``hints``.

    Raises ``invalid_request`` for a file with any fault. The detail tells the first one with entry
    and line; ``extra["errors"]`` holds the first twenty.
    """
    if len(data) > MAX_FILE_BYTES:
        raise StrataError(INVALID_REQUEST, f"A hint file has at most {MAX_FILE_BYTES} bytes; this has {len(data)}.")
    text = decode_bytes(data).text
    raws = {"yaml": _read_yaml, "json": _read_json, "jsonl": _read_jsonl}[file_format](text)
    if len(raws) > MAX_HINTS_PER_CALL:
        raise StrataError(INVALID_REQUEST, f"A hint file has at most {MAX_HINTS_PER_CALL} hints; this has {len(raws)}.")
    hints: list[HintInput] = []
    errors: list[dict[str, object]] = []
    for number, raw in enumerate(raws):
        try:
            hints.append(_hint(raw, f"/{number}"))
        except StrataError as error:
            place = f"Entry {number + 1}" + (f" (line {raw.line})" if raw.line else "")
            detail = f"{place}: {error.detail}"
            errors.append({"entry": number + 1, "line": raw.line or None, "pointer": error.pointer, "detail": detail})
            if len(errors) == _MAX_ERRORS:
                break
    if errors:
        first = errors[0]
        raise StrataError(
            INVALID_REQUEST, str(first["detail"]), pointer=str(first["pointer"]), extra={"errors": errors}
        )
    return hints


def render_hints(entries: Sequence[HintEntry], file_format: HintFormat) -> str:
    """Write hints as a file that :func:`parse_hints` reads back to the same; fields at their default are left out."""
    rows = [_file_row(entry) for entry in entries]
    if file_format == "jsonl":
        return "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)
    if file_format == "json":
        return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n"
    return yaml.dump(rows, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)


def _file_row(entry: HintEntry) -> dict[str, Any]:
    row: dict[str, Any] = {"id": str(entry.hint_id), "title": entry.title}
    built = msgspec.to_builtins(entry)
    row.update({name: built[name] for name in _FIELDS if name not in row and built[name]})
    return row


def _hint(raw: _Raw, pointer: str) -> HintInput:
    if raw.problem:
        raise StrataError(INVALID_REQUEST, raw.problem, pointer=pointer)
    if not isinstance(raw.value, dict):
        raise StrataError(INVALID_REQUEST, "A hint is a mapping of fields.", pointer=pointer)
    for name in raw.value:
        if name not in _FIELDS:
            known = ", ".join(_FIELDS)
            detail = f"There is no field {str(name)[:80]!r}. The fields are {known}."
            raise StrataError(INVALID_REQUEST, detail, pointer=pointer)
    value = {name: _moment(held) if name.startswith("valid") else held for name, held in raw.value.items()}
    try:
        hint = msgspec.convert(value, HintInput, strict=False)
    except msgspec.ValidationError as error:
        message = str(error)
        path = _PATH.search(message)
        steps = "".join(f"/{name or index}" for name, index in _STEP.findall(path[1] if path else ""))
        where = f"{steps[1:].replace('/', ' ')}: " if steps else ""
        detail = f"{where}{_PATH.sub('', message)}."
        raise StrataError(INVALID_REQUEST, detail, pointer=f"{pointer}{steps}") from error
    return valid_hint(hint, pointer)


def _moment(value: object) -> object:
    """Take a date as the midnight, UTC, at which it begins."""
    return f"{value}T00:00:00Z" if isinstance(value, str) and _DATE.fullmatch(value) else value


def _entries(value: object) -> list[object]:
    if isinstance(value, dict) and set(value) == {"hints"}:
        value = value["hints"]
    if value is None:
        return []
    if not isinstance(value, list):
        raise StrataError(INVALID_REQUEST, _NOT_A_LIST)
    return value


def _read_json(text: str) -> list[_Raw]:
    try:
        return [_Raw(value) for value in _entries(msgspec.json.decode(text.encode("utf-8", "replace")))]
    except (msgspec.DecodeError, RecursionError) as error:
        raise StrataError(INVALID_REQUEST, f"The file is not valid JSON: {error}.") from error


def _read_jsonl(text: str) -> list[_Raw]:
    return [_json_line(line, number) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _json_line(line: str, number: int) -> _Raw:
    try:
        return _Raw(msgspec.json.decode(line.encode("utf-8", "replace")), number)
    except (msgspec.DecodeError, RecursionError) as error:
        return _Raw(None, number, f"This line is not valid JSON: {error}.")


class _Dumper(yaml.SafeDumper):
    """Writes strings with rare line breaks in double quotes, the one style that escapes them."""


def _string(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = '"' if any(char in value for char in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _string)


def _read_yaml(text: str) -> list[_Raw]:
    try:
        root = yaml.compose(text, Loader=_loader())
        if root is None:
            return []
        if isinstance(root, yaml.MappingNode) and [key.value for key, _ in root.value] == ["hints"]:
            root = root.value[0][1]
        if _is_null(root):
            return []
        if not isinstance(root, yaml.SequenceNode):
            raise StrataError(INVALID_REQUEST, _NOT_A_LIST)
        return [_yaml_entry(node) for node in root.value]
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise StrataError(INVALID_REQUEST, f"The file is not valid YAML{place}: {problem}.") from error


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _yaml_entry(node: yaml.Node) -> _Raw:
    """Read one entry. Scalars are taken as written (``no`` is a word), but for those of the metadata."""
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        return _Raw(None, line)
    values: dict[str, object] = {}
    for key, value in node.value:
        name = str(key.value)
        if name in values:
            return _Raw(None, line, f"The field {name[:80]!r} stands twice.")
        try:
            values[name] = _typed(value) if name == "metadata" else _plain(value)
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            problem = getattr(error, "problem", None) or str(error)
            return _Raw(None, line, f"{name}: {problem}.")
    return _Raw(values, line)


def _plain(node: yaml.Node) -> object:
    if isinstance(node, yaml.ScalarNode):
        return None if _is_null(node) else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain_item(item) for item in node.value]
    raise ValueError("a mapping does not belong here")


def _plain_item(node: yaml.Node) -> object:
    if isinstance(node, yaml.ScalarNode):
        return None if _is_null(node) else node.value
    raise ValueError("a list of texts is expected")


def _typed(node: yaml.Node) -> object:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")
