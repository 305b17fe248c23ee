"""Whatever happens to a file on its way, it is read or refused by a named reason."""

import random
from pathlib import Path

import pytest

from strata.errors import StrataError
from strata.sources.readers import read_document
from strata.text.passages import build_passages
from strata.text.sections import build_sections

DATA = Path(__file__).parents[1] / "data" / "readers"
# PDFs are left to the reader process: pdfium may take its process down.
SUFFIXES = {".md", ".html", ".docx", ".csv", ".vtt", ".srt"}
NAMES = sorted(path.name for path in DATA.iterdir() if path.suffix in SUFFIXES and path.stem != "README")
INSERTS = [
    b"\x00",
    b"\xff",
    b'"',
    b"<",
    b"\n\n",
    b"-->",
    b"# ",
    b"|",
    b"\xed\xa0\x80",
    b"---\n",
    b"<table>",
    b"\xef\xbb\xbf",
]


def damaged(data, chance):
    data = bytearray(data)
    for _ in range(chance.randint(1, 12)):
        where = chance.randrange(len(data)) if data else 0
        match chance.randrange(4):
            case 0:
                del data[where : where + chance.randint(1, 200)]
            case 1:
                data[where:where] = chance.choice(INSERTS) * chance.randint(1, 5)
            case 2:
                data[where:where] = data[: chance.randint(1, 300)]
            case _:
                data[where : where + 1] = bytes([chance.randrange(256)])
    return bytes(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_read_or_refused_with_a_reason(name):
    data = (DATA / name).read_bytes()
    chance = random.Random(name)
    reasons = set()
    for _ in range(25):
        try:
            document = read_document(name, damaged(data, chance))
        except StrataError as error:
            reasons.add(error.extra["reason"])
            continue
        raw = document.text.encode()
        passages = build_passages(document, build_sections(document), target_weight=40, max_weight=80)
        assert passages
        for passage in passages:
            assert raw[passage.start_byte : passage.end_byte].decode() == passage.text
    assert None not in reasons


def test_every_sample_is_read_or_refused():
    outcomes = {}
    for path in sorted(DATA.iterdir()):
        if not path.is_file() or path.name == "README.md":
            continue
        try:
            read_document(path.name, path.read_bytes())
            outcomes[path.name] = "read"
        except StrataError as error:
            outcomes[path.name] = error.extra["reason"]
    refused = {name: reason for name, reason in outcomes.items() if reason != "read"}
    assert refused == {
        "docling_eml_simple.eml": "unsupported_format",
        "pikepdf_cyclic-toc.pdf": "no_text",
        "webvttpy_invalid_format3.srt": "malformed",
        "webvttpy_no_captions.vtt": "empty",
    }
