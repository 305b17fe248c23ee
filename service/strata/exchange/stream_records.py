"""The records of a stream that stand by themselves: source headers, schemas and groups, in both forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from strata.exchange.fields import (
    Fields,
    Refused,
    boolean,
    in_object,
    name,
    name_list,
    number,
    one_of,
    only,
    optional_text,
    required,
    shown,
    text_of,
    type_name,
    uuid_text,
    wrong_type,
)
from strata.exchange.records import (
    MAX_CONTEXT_CHARS,
    MAX_DESCRIPTION_BYTES,
    MAX_GROUP_MEMBERS,
    MAX_NAME_BYTES,
    MAX_SOURCE_BYTES,
    REVISION,
    Create,
    Form,
    GroupRecord,
    RelationRule,
    SchemaMode,
    SchemaRecord,
    SourceBatch,
    TypeRule,
)
from strata.graph.schema import CARDINALITIES, Cardinality

_CREATE = ("description", "pinned", "dice_floor", "semantic_floor")
_SCHEMA = ("mode", "closed_labels", "types", "relations")
# Structure only: how many types a schema may have is judged where it is stored.
_MAX_LISTED = 10_000
_SHAPES = (
    "a field of subject, alias, passage, question, section, locator, type, taguru_batch, taguru_schema, taguru_group"
)

Record = SourceBatch | SchemaRecord | GroupRecord
Read = Callable[[Fields, str | None, int], Record]


@dataclass(frozen=True, slots=True)
class Header:
    """One kind of record in one form, and how it is read."""

    kind: Literal["source", "schema", "group"]
    read: Read


def typed_header(fields: Fields) -> Header:
    """Return the record that ``type`` names; a line that has no such field matches no shape at all."""
    if "type" not in fields:
        keys = ", ".join(shown(key) for key in list(fields)[:8]) or "an empty object"
        raise Refused("", "missing", _SHAPES, keys, "Correct the spelling of the field that says what the line is.")
    return _TYPED[one_of(fields, "type", tuple(_TYPED))]


def _read_source(form: Form, fields: Fields, file: str | None, line: int) -> SourceBatch:
    create = fields.get("create")
    return SourceBatch(
        form=form,
        context=_context(fields, form),
        source=name(fields, "source" if form is Form.NAME else "id", MAX_SOURCE_BYTES),
        create=None if create is None else in_object(create, "create", partial(_create, form)),
        file=file,
        line=line,
    )


def _read_schema(form: Form, fields: Fields, file: str | None, line: int) -> SchemaRecord:
    return SchemaRecord(
        form=form,
        context=_context(fields, form),
        mode=cast("SchemaMode", one_of(fields, "mode", ("off", "warn", "strict"))),
        closed_labels=boolean(required(fields, "closed_labels"), "closed_labels"),
        types=in_object(required(fields, "types"), "types", partial(_rules, _type_rule)),
        relations=in_object(required(fields, "relations"), "relations", partial(_rules, _relation_rule)),
        file=file,
        line=line,
    )


def _read_group(form: Form, fields: Fields, file: str | None, line: int) -> GroupRecord:
    key = "contexts" if form is Form.NAME else "context_ids"
    members = name_list(fields.get(key), key, MAX_GROUP_MEMBERS, MAX_NAME_BYTES)
    if form is Form.ID:
        for at, member in enumerate(members):
            uuid_text(member, f"{key}[{at}]")
    return GroupRecord(
        form=form,
        name=_label(fields, "name" if form is Form.NAME else "id"),
        description=optional_text(fields, "description", MAX_DESCRIPTION_BYTES),
        contexts=members,
        groups=name_list(fields.get("groups"), "groups", MAX_GROUP_MEMBERS, MAX_NAME_BYTES),
        file=file,
        line=line,
    )


def _context(fields: Fields, form: Form) -> str:
    if form is Form.NAME:
        return _label(fields, "context")
    return uuid_text(required(fields, "context_id"), "context_id")


def _label(fields: Fields, key: str) -> str:
    """Return the name of a context or group: as long as a context's may be."""
    value = name(fields, key, MAX_NAME_BYTES)
    if len(value) > MAX_CONTEXT_CHARS:
        raise Refused(
            key, "too_long", f"at most {MAX_CONTEXT_CHARS} characters", f"{len(value)} characters", f"Shorten {key}."
        )
    return value


def _create(form: Form, fields: Fields) -> Create:
    only(fields, _CREATE if form is Form.NAME else ("name", *_CREATE))
    pinned = fields.get("pinned")
    return Create(
        name=None if form is Form.NAME else _label(fields, "name"),
        description=optional_text(fields, "description", MAX_DESCRIPTION_BYTES),
        pinned=False if pinned is None else boolean(pinned, "pinned"),
        dice_floor=_floor(fields, "dice_floor"),
        semantic_floor=_floor(fields, "semantic_floor"),
    )


def _floor(fields: Fields, key: str) -> float | None:
    value = fields.get(key)
    return None if value is None else number(value, key, 0.0, 1.0)


def _rules(read: Callable[[Fields], Any], fields: Fields) -> Mapping[str, Any]:
    return {text_of(key, "name", MAX_NAME_BYTES): in_object(rule, shown(key), read) for key, rule in fields.items()}


def _type_rule(fields: Fields) -> TypeRule:
    only(fields, ("is_a",))
    return TypeRule(_names(fields, "is_a"))


def _relation_rule(fields: Fields) -> RelationRule:
    only(fields, ("domain", "range", "cardinality"))
    said = None if fields.get("cardinality") is None else one_of(fields, "cardinality", CARDINALITIES)
    return RelationRule(_names(fields, "domain"), _names(fields, "range"), cast("Cardinality | None", said))


def _names(fields: Fields, key: str) -> tuple[str, ...]:
    return name_list(required(fields, key), key, _MAX_LISTED, MAX_NAME_BYTES)


def _named(key: str, allowed: tuple[str, ...], read: Callable[[Form, Fields, str | None, int], Record]) -> Read:
    """Return how a record of the name form is read: its own key says the version, which is 1."""

    def checked(fields: Fields, file: str | None, line: int) -> Record:
        only(fields, (key, *allowed))
        version = fields[key]
        if type(version) is not int:
            wrong_type(key, "the version 1", version)
        if version != 1:
            raise Refused(key, "domain", "the version 1", repr(version)[:64], "Write the stream in version 1.")
        return read(Form.NAME, fields, file, line)

    return checked


def _dated(allowed: tuple[str, ...], read: Callable[[Form, Fields, str | None, int], Record]) -> Read:
    """Return how a record of the id form is read: its version is a date and may be left out."""

    def checked(fields: Fields, file: str | None, line: int) -> Record:
        only(fields, ("type", "version", *allowed))
        version = fields.get("version")
        if version is not None and version != REVISION:
            actual = shown(version) if type(version) is str else type_name(version)
            raise Refused("version", "domain", f"{REVISION!r}", actual, "Correct the version or leave it out.")
        return read(Form.ID, fields, file, line)

    return checked


HEADERS: tuple[tuple[str, Header], ...] = (
    ("taguru_batch", Header("source", _named("taguru_batch", ("context", "source", "create"), _read_source))),
    ("taguru_schema", Header("schema", _named("taguru_schema", ("context", *_SCHEMA), _read_schema))),
    (
        "taguru_group",
        Header("group", _named("taguru_group", ("name", "description", "contexts", "groups"), _read_group)),
    ),
)
_TYPED: dict[str, Header] = {
    "source": Header("source", _dated(("id", "context_id", "create"), _read_source)),
    "schema": Header("schema", _dated(("context_id", *_SCHEMA), _read_schema)),
    "group": Header("group", _dated(("id", "description", "context_ids", "groups"), _read_group)),
}
