"""The lines of a source: assertions, aliases, the passage, questions, sections and locators."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from msgspec.structs import replace

from strata.exchange.fields import (
    Fields,
    Refused,
    epoch,
    in_object,
    name,
    name_list,
    number,
    one_of,
    only,
    paragraph,
    required,
    text_of,
)
from strata.exchange.records import (
    MAX_LOCATOR_KIND_BYTES,
    MAX_LOCATOR_VALUE_BYTES,
    MAX_PASSAGE_BYTES,
    MAX_QUESTION_BYTES,
    MAX_QUESTIONS,
    MAX_SECTION_BYTES,
    MAX_TAG_BYTES,
    MAX_TAGS,
    MAX_WEIGHT,
    AliasKind,
    AliasLine,
    AssociationLine,
    LocatorLine,
    PassageLine,
    QuestionLine,
    SectionLine,
    SourceBatch,
)

_ASSOCIATION = ("subject", "label", "object", "weight", "paragraph", "valid_from", "valid_until")
_ASSOCIATION_SET = frozenset(_ASSOCIATION)
_ALIAS = ("alias", "canonical", "kind")
_PASSAGE = ("passage", "stored_at", "date", "tags")
_QUESTION = ("paragraph", "question")
_SECTION = ("paragraph", "section")
_LOCATOR = ("paragraph", "locator")
_LOCATOR_FIELDS = ("kind", "value")


class Builder:
    """The source that is being read: its lines so far."""

    def __init__(self, header: SourceBatch) -> None:
        self.header = header
        self.passage: PassageLine | None = None
        self.associations: list[AssociationLine] = []
        self.aliases: dict[tuple[str, str], AliasLine] = {}
        self.questions: dict[int, dict[str, QuestionLine]] = {}
        self.sections: dict[int, SectionLine] = {}
        self.locators: dict[int, LocatorLine] = {}
        self.first_pointer: tuple[str, int] | None = None

    def association(self, fields: Fields, line: int) -> None:
        """Read an assertion. One between a name and itself is refused: no such fact is kept."""
        if not _ASSOCIATION_SET.issuperset(fields):
            _only_association(fields)
        subject, label, target = name(fields, "subject"), name(fields, "label"), name(fields, "object")
        weight = number(required(fields, "weight"), "weight", -MAX_WEIGHT, MAX_WEIGHT)
        if subject == target:
            raise Refused(
                "object",
                "domain",
                "another name than that of the subject",
                "the same name",
                "Take the line away: a fact joins two different names.",
            )
        if len(fields) == 4:
            self.associations.append(AssociationLine(subject, label, target, weight, line=line))
            return
        at = fields.get("paragraph")
        at = None if at is None else paragraph(at)
        since, until = epoch(fields, "valid_from"), epoch(fields, "valid_until")
        if since is not None and until is not None and since >= until:
            raise Refused(
                "valid_until",
                "range",
                f"a time after valid_from ({since})",
                str(until),
                "Give the end after the start.",
            )
        if at is not None:
            self._points("an association with a paragraph", line)
        self.associations.append(AssociationLine(subject, label, target, weight, at, since, until, line))

    def alias(self, fields: Fields, line: int) -> None:
        """Read an alias; each spelling stands once in its namespace, even with the same canonical."""
        only(fields, _ALIAS)
        spelling, canonical = name(fields, "alias"), name(fields, "canonical")
        kind = cast("AliasKind", one_of(fields, "kind", ("concept", "label")))
        first = self.aliases.setdefault((kind, spelling), AliasLine(spelling, canonical, kind, line))
        if first.line != line:
            raise Refused(
                "alias",
                "conflict",
                f"each {kind} alias once in a source",
                f"the alias of line {first.line} again",
                "Keep one of the two.",
            )

    def text(self, fields: Fields, line: int) -> None:
        """Read the passage. It may be empty: that is a text without paragraphs."""
        only(fields, _PASSAGE)
        if self.passage is not None:
            raise Refused(
                "passage",
                "conflict",
                "one passage a source",
                f"a second one, after line {self.passage.line}",
                "Join the two, or give the second a source of its own.",
            )
        text = text_of(required(fields, "passage"), "passage", MAX_PASSAGE_BYTES, may_be_empty=True)
        tags = name_list(fields.get("tags"), "tags", MAX_TAGS, MAX_TAG_BYTES)
        self.passage = PassageLine(text, epoch(fields, "stored_at"), epoch(fields, "date"), tags, line)

    def question(self, fields: Fields, line: int) -> None:
        """Read a question; the same one of the same paragraph again adds nothing."""
        only(fields, _QUESTION)
        at = paragraph(required(fields, "paragraph"))
        asked = self.questions.setdefault(at, {})
        question = name(fields, "question", MAX_QUESTION_BYTES)
        asked.setdefault(question, QuestionLine(at, question, line))
        if len(asked) > MAX_QUESTIONS:
            raise Refused(
                "question",
                "over_limit",
                f"at most {MAX_QUESTIONS} questions a paragraph",
                f"one more for paragraph {at}",
                "Keep the best ones.",
            )
        self._points("a question", line)

    def section(self, fields: Fields, line: int) -> None:
        """Read a section; the last one of a paragraph counts."""
        only(fields, _SECTION)
        at = paragraph(required(fields, "paragraph"))
        self.sections[at] = SectionLine(at, name(fields, "section", MAX_SECTION_BYTES), line)
        self._points("a section", line)

    def locator(self, fields: Fields, line: int) -> None:
        """Read a locator; the last one of a paragraph counts."""
        only(fields, _LOCATOR)
        at = paragraph(required(fields, "paragraph"))
        kind, value = in_object(required(fields, "locator"), "locator", _read_locator)
        self.locators[at] = LocatorLine(at, kind, value, line)
        self._points("a locator", line)

    def finish(self) -> SourceBatch:
        """Return the source; refuses lines that point into a passage that is not there."""
        if self.passage is None and self.first_pointer is not None:
            what, line = self.first_pointer
            raise Refused(
                "passage",
                "missing",
                "a passage in the source that has paragraphs",
                f"{what} and no passage",
                "Add a passage line to this source, or take the paragraph away.",
                line=line,
            )
        return replace(
            self.header,
            passage=self.passage,
            associations=tuple(self.associations),
            aliases=tuple(self.aliases.values()),
            questions=tuple(line for at in sorted(self.questions) for line in self.questions[at].values()),
            sections=tuple(self.sections[at] for at in sorted(self.sections)),
            locators=tuple(self.locators[at] for at in sorted(self.locators)),
        )

    def _points(self, what: str, line: int) -> None:
        if self.first_pointer is None:
            self.first_pointer = (what, line)


# The first of these keys that a line has says what it is.
OPERATIONS: tuple[tuple[str, Callable[[Builder, Fields, int], None]], ...] = (
    ("subject", Builder.association),
    ("alias", Builder.alias),
    ("passage", Builder.text),
    ("question", Builder.question),
    ("section", Builder.section),
    ("locator", Builder.locator),
)


def _only_association(fields: Fields) -> None:
    if "source" in fields:
        raise Refused(
            "source",
            "domain",
            "an association without a source",
            "a source of its own",
            "Take the field away: the source is that of the header.",
        )
    only(fields, _ASSOCIATION)


def _read_locator(fields: Fields) -> tuple[str, str]:
    only(fields, _LOCATOR_FIELDS)
    return name(fields, "kind", MAX_LOCATOR_KIND_BYTES), name(fields, "value", MAX_LOCATOR_VALUE_BYTES)
