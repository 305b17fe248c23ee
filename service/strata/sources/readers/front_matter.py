"""Front matter: YAML between ``---`` lines or TOML between ``+++`` lines at the head of Markdown."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_FRONT_MATTER_CHARS = 64 * 1024

_YAML = re.compile(r"---[ \t]*\n(?:(.*?)\n)??(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TOML = re.compile(r"\+\+\+[ \t]*\n(?:(.*?)\n)??\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What the head of a document says; ``end`` is where the body starts, 0 when there is no head."""

    values: Mapping[str, object] = field(default_factory=dict)
    end: int = 0
    warning: str = ""


def split_front_matter(text: str) -> FrontMatter:
    """Read the front matter of a Markdown text.

    Malformed front matter, and front matter over 64 KiB, is left in the text with a warning; a text
    that merely opens with a rule (``---``) has none.
    """
    head = text[: MAX_FRONT_MATTER_CHARS + 8]
    if match := _YAML.match(head):
        values, problem = _yaml(match[1] or "")
    elif match := _TOML.match(head):
        values, problem = _toml(match[1] or "")
    elif head.startswith(("---\n", "+++\n")) and len(text) > len(head) and _looks_like_fields(head):
        return FrontMatter(warning="The front matter is longer than 64 KiB and was read as text.")
    else:
        return FrontMatter()
    if problem:
        return FrontMatter(warning=f"The front matter was read as text: {problem}")
    if values is None:
        return FrontMatter()
    return FrontMatter(values, match.end())


def _looks_like_fields(head: str) -> bool:
    return re.match(r"...\n[\w-]+\s*[:=]", head) is not None


def _toml(source: str) -> tuple[Mapping[str, object] | None, str]:
    try:
        return tomllib.loads(source), ""
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        return None, f"it is not valid TOML ({_first_line(error)})."


def _yaml(source: str) -> tuple[Mapping[str, object] | None, str]:
    """Parse YAML to a mapping; None without a problem means that this is no front matter."""
    import yaml

    try:
        try:
            # Merge keys multiply a few lines into millions of values; taken as text they do not.
            loader = yaml.BaseLoader if "<<" in source else yaml.SafeLoader
            loaded = yaml.load(source, Loader=loader)  # noqa: S506  neither builds more than plain values
        except (ValueError, OverflowError):  # a date that does not exist: take every value as written
            loaded = yaml.load(source, Loader=yaml.BaseLoader)  # noqa: S506  BaseLoader makes strings only
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        fields = re.match(r"[\w-]+[ \t]*:", source.lstrip())
        return None, f"it is not valid YAML ({_first_line(error)})." if fields else ""
    if loaded is None and not source.strip():
        return {}, ""
    if not isinstance(loaded, dict):
        return None, ""
    return loaded, ""


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is not None and problem:
        return f"line {mark.line + 2}: {problem}"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def text_field(values: Mapping[str, object], *names: str) -> str:
    """Return the first of the fields that holds a word, as text; YAML's reading of ``no`` is undone."""
    for name in names:
        value = values.get(name)
        if value is False:
            return "no"
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
    return ""
