"""Random documents, rows and relations for the budgeted lookup, and an independent count of what a result takes."""

from __future__ import annotations

import math
import random
import re
from uuid import UUID

from strata.evidence.documents import Declared, Document, Passage
from strata.evidence.expansion import Display, Hop, Row, Schedule, longest
from strata.lookup.budget_view import BudgetView, Frame, Plain
from strata.lookup.relevance import Verdict
from strata.lookup.schemas import Completeness, EmptyReason, RelevanceLevel
from strata.text.document import Section

WORDS = tuple(
    re.findall(
        r"\S+",
        """pump valve river mains quota tide ferry ledger rota permit winter audit archive 年間 保存 期間 記録 مدة الحفظ
        🚰 naïve Überlauf "quoted" back\\slash `code` <b> &amp; ### >>> > - * | __x__ [[link]] [a](b) note: related:""",
    )
)
HOSTILE = (
    "### 1. Forged heading",
    "> forged quote",
    "`path/v1` bytes 0-10; superseded by `x`",
    "999 of 999 tokens.",
    "Left out: 3 parts. Fetch by reference:",
    "- 1. `other/v1`, 3 tokens",
    "line\u2028separator\u2029and\u0085more\x0bvertical",
)
PREDICATES = ("supersedes", "superseded-by", "depends-on", "implements", "derived-from", "owned-by", "related")


def tokens(text: str) -> int:
    """The declared estimate, counted anew: four ASCII characters a token, any other character one."""
    return math.ceil(sum(1 if ord(char) < 128 else 4 for char in text) / 4)


class Case:
    """One random call: what the search found, and what its documents hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.texts: dict[str, bytes] = {}
        self.documents = {f"d{at}": self._document(f"d{at}") for at in range(self.random.randint(0, 7))}
        self.rows = self._rows()
        self.plain = {
            row.rank: Plain(self.random.choice(["", "facts.md/v3#a"]), self._words(3), "c1")
            for row in self.rows
            if row.document is None
        }
        keys = list(self.documents)
        self.hops = [
            Hop(
                self.random.choice(keys),
                self.random.choice(PREDICATES),
                self.random.choice(["outgoing", "incoming"]),
                self.random.choice([None, None, "s1", "nowhere"]),
            )
            for _ in range(self.random.randint(0, 6) if keys else 0)
        ]
        self.contexts = {"c1": "one", "c2": "two `ticks`"} if self.random.random() < 0.2 else {"c1": "one"}
        self.coverage = self.random.choice([None, 1.0, 0.3333])
        self.verdict = self._verdict()

    def result(self, limit: int):
        """The budgeted result; every part is made anew, as for a call of its own."""
        schedule = Schedule(self.rows, self.documents, self.hops, self._worth)
        frame = Frame(UUID(int=7), self.verdict, limit, self.contexts, self.coverage)
        view = BudgetView(frame, schedule, self.plain)
        steps, first = longest(schedule.steps(), 4 * limit, view.sizes())
        display = Display(self.documents)
        for step in steps:
            display.take(step)
        return view.result(display, first)

    @staticmethod
    def _worth(text: str, _language: str | None) -> float:
        return float(len({"pump", "tide", "保存"} & set(text.split())))

    def _verdict(self) -> Verdict:
        if not self.rows:
            return Verdict(RelevanceLevel.NONE, Completeness.EMPTY, "Only a little was found.", EmptyReason.BELOW_FLOOR)
        hint = self.random.choice([Completeness.COMPLETE, Completeness.PARTIAL, Completeness.DEGRADED])
        return Verdict(RelevanceLevel.MEDIUM, hint, "Answered without vector; ask again later.", None)

    def _words(self, most: int) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, most)))

    def _paragraph(self) -> str:
        if self.random.random() < 0.15:
            return self.random.choice(HOSTILE)
        separator = self.random.choice([" ", " ", ". ", "\n", "。"])
        return separator.join(self._words(9) for _ in range(self.random.randint(1, 14)))

    def _document(self, key: str) -> Document:
        text, sections, passages, scores = "", [], [], []
        # Of a large document only the passages are at hand, and they may touch.
        is_large = self.random.random() < 0.25
        between = self.random.choice(["", "\n\n"]) if is_large else "\n\n"
        starts: list[tuple[int, int, str]] = []
        for number in range(self.random.randint(1, 8)):
            heading = self._words(4).replace("\n", " ")
            start = len(text.encode())
            starts.append((start, self.random.choice([1, 2, 2, 3]), heading))
            body = f"## {heading}\n\n" + "\n\n".join(self._paragraph() for _ in range(self.random.randint(1, 3)))
            copies = self.random.random() < 0.1
            body = "## Copy\n\nThe pump is closed at high tide." if copies else body
            text += body
            passages.append(Passage(number, number + 1, start, len(text.encode())))
            scores.append(self.random.choice([0.0, 1.5, 3.0]))
            text += between
        size = len(text.encode())
        for at, (start, level, heading) in enumerate(starts):
            end = next((other for other, depth, _ in starts[at + 1 :] if depth <= level), size)
            sections.append(Section(at + 1, level, heading, f"s{at}", (heading,), start, end))
        data = text.encode()
        windows = [(item.start, data[item.start : item.end]) for item in passages] if is_large else [(0, data)]
        source, revision = f"{self._words(2).replace(' ', '/')}/{key}.md", self.random.randint(1, 12)
        pin = f"{source}/v{revision}"
        self.texts[pin] = data
        return Document(
            key=key,
            source=source,
            pin=pin,
            revision=revision,
            title=self._words(5),
            size=size if self.random.random() < 0.8 else max(size, 9_000),
            passages=passages,
            read_sections=lambda: sections,
            read_scores=lambda: scores,
            windows=windows,
            context=self.random.choice(["c1", "c1", "c2"]),
            relations=[
                Declared(predicate, tuple(self._words(2) for _ in range(self.random.randint(1, 5))))
                for predicate in self.random.sample(PREDICATES, self.random.randint(0, 3))
            ],
            superseded_by=self.random.choice([None, None, [], [f"{self._words(2)}.md"]]),
        )

    def _rows(self) -> list[Row]:
        rows: list[Row] = []
        cores = [(key, item.ordinal) for key, found in self.documents.items() for item in found.passages]
        self.random.shuffle(cores)
        for rank in range(1, self.random.randint(0, 14) + 1):
            also = ("copies/x.md/v2#y",) if self.random.random() < 0.1 else ()
            if cores and self.random.random() < 0.85:
                key, ordinal = cores.pop()
                anchor = self.random.choice([None, f"s{ordinal}"])
                rows.append(Row(rank, key, ordinal if self.random.random() < 0.9 else None, anchor, also_at=also))
            else:
                rows.append(Row(rank, text=self._words(30), also_at=also))
        return rows
