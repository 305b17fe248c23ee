"""DOCX and PDF."""

import hashlib
import io
import zipfile
from pathlib import Path

import docx
import pytest

from strata.errors import StrataError
from strata.sources.readers import docx as docx_reader
from strata.sources.readers import read_document
from strata.sources.readers.pdf_lines import Line, RunningLines, page_blocks, usual_spacing
from strata.text.passages import build_passages
from strata.text.sections import build_sections

DATA = Path(__file__).parents[1] / "data" / "readers"
PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def read(name):
    return read_document(name, (DATA / name).read_bytes())


def shown(document, *kinds):
    return [document.text[block.start : block.end] for block in document.blocks if not kinds or block.kind in kinds]


def reason_of(name, data):
    with pytest.raises(StrataError) as caught:
        read_document(name, data)
    return caught.value.extra["reason"]


def saved(document):
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()


def test_golden_docx_tables_show_merged_cells_once():
    tables = shown(read("docling_word_tables.docx"), "table")
    assert [table.split("\n") for table in tables[:5]] == [
        ["Header 0.0 | Header 0.1 | Header 0.2", "Cell 1.0 | Cell 1.1 | Cell 1.2", "Cell 2.0 | Cell 2.1 | Cell 2.2"],
        ["Header 0.0 | Header 0.1 | Header 0.2", "Cell 1.0 | Merged Cell 1.1 1.2", "Cell 2.0 | Merged Cell 2.1 2.2"],
        [
            "Header 0.0 | Header 0.1 | Header 0.2 | Header 0.3",
            "Cell 1.0 | Merged Cell 1.1 1.2 |  | Cell 1.3",
            "Cell 2.0 | Merged Cell 2.1 2.2 |  | Cell 2.3",
        ],
        [
            "Header 0.0 | Header 0.1 | Header 0.2",
            "Cell 1.0 | Merged Cell 1.1 2.1 | Cell 1.2",
            "Cell 2.0 |  | Cell 2.2",
            "Cell 3.0 | Merged Cell 3.1 4.1 | Cell 3.2",
            "Cell 4.0 |  | Cell 4.2",
        ],
        [
            "Header 0.0 | Header 0.1 | Header 0.2",
            "Cell 1.0 | Merged Cell 1.1 2.1 | Cell 1.2",
            "Cell 2.0 |  | Cell 2.2",
            "Cell 3.0 | Merged Cell 3.1 4.1 | Cell 3.2",
            "Cell 4.0 |  | Cell 4.2 |  | Merged Cell 4.4 5.4",
            " |  |  |  | Cell 8.4",
        ],
    ]


def test_docx_headings_by_style_make_the_tree():
    sections = build_sections(read("docling_unit_test_headers.docx"))
    assert [section.breadcrumb for section in sections[1:5]] == [
        ("Test Document",),
        ("Test Document", "Section 1"),
        ("Test Document", "Section 1", "Section 1.1"),
        ("Test Document", "Section 1", "Section 1.2"),
    ]


def test_strict_docx_is_read():
    assert read("docling_Strict.docx").text == "Some text"


def test_docx_lists_code_breaks_and_wrapped_cjk_cells():
    source = docx.Document()
    source.add_heading("Über uns", 2)
    source.add_paragraph("one", style="List Bullet")
    source.add_paragraph("two", style="List Number")
    source.add_paragraph("line\nbreak\ttab")
    source.add_paragraph("said", style="Quote")
    table = source.add_table(1, 2)
    table.cell(0, 0).text = "持股比\n例"
    table.cell(0, 1).add_table(1, 1).cell(0, 0).text = "inner"
    source.sections[0].header.paragraphs[0].text = "HEADER"
    document = read_document("a.docx", saved(source))
    assert shown(document) == ["Über uns", "- one\n- two", "line\nbreak\ttab", "said", "持股比例 | inner"]
    assert document.blocks[0].level == 2
    assert "HEADER" not in document.text


def test_damaged_and_hostile_docx_are_refused(monkeypatch):
    good = (DATA / "docling_Strict.docx").read_bytes()
    assert reason_of("a.docx", good[: len(good) // 2]) == "malformed"
    assert reason_of("a.docx", b"PK\x03\x04" + b"\x00" * 100) in {"malformed", "unsupported_format", "binary"}
    assert reason_of("a.docx", b"not a zip at all") == "malformed"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("[Content_Types].xml", "<Types/>")
    assert reason_of("a.docx", archive.getvalue()) == "malformed"
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600
    assert reason_of("a.docx", ole + "EncryptedPackage".encode("utf-16-le")) == "encrypted"
    assert reason_of("a.docx", ole) == "unsupported_format"
    assert reason_of("a.docx", saved(docx.Document())) == "no_text"
    monkeypatch.setattr(docx_reader, "MAX_UNPACKED_BYTES", 1000)
    assert reason_of("a.docx", good) == "too_large"


def test_pdf_pages_are_locators():
    document = read("pikepdf_fourpages.pdf")
    assert [(block.page, text) for block, text in zip(document.blocks, shown(document), strict=True)] == [
        (1, "First page"),
        (2, "Second page"),
        (3, "Third page"),
        (4, "Last page"),
    ]
    assert [passage.page for passage in build_passages(document, build_sections(document))] == [1, 2, 3, 4]


def test_pdf_outlines_become_headings():
    sections = build_sections(read("pikepdf_outlines.pdf"))
    assert [(section.level, section.heading) for section in sections[1:6]] == [
        (1, "1 One"),
        (2, "1.1 One-A"),
        (2, "1.2 One-B"),
        (3, "1.2.1 One-B-I"),
        (3, "1.2.2 One-B-II"),
    ]


def test_wrapped_pdf_lines_make_paragraphs_and_parted_words_join():
    document = read("docling_code_and_formula.pdf")
    assert shown(document)[1].startswith(
        "Lorem ipsum dolor sit amet, consetetur sadipscing elitr, sed diam nonumy eirmod tempor invidunt"
    )
    assert "{ return a + b;" in document.text


def test_running_heads_and_page_numbers_are_kept_once():
    running = RunningLines()
    pages = [
        [Line("Annual report"), Line(f"text {number}"), Line("Figures"), Line(f"Page {number + 1}")]
        for number in range(4)
    ]
    kept = [[line.text for line in running.without(page, index, lambda _: False)] for index, page in enumerate(pages)]
    assert kept[0] == ["Annual report", "text 0", "Figures", "Page 1"]
    assert kept[1:] == [[f"text {number}", "Figures"] for number in (1, 2, 3)]


def test_a_first_line_with_a_number_of_its_own_stays():
    running = RunningLines()
    pages = [[Line(f"Annex {number}"), Line("a"), Line("b")] for number in (1, 1, 7)]
    kept = [running.without(page, index, lambda _: False)[0].text for index, page in enumerate(pages)]
    assert kept == ["Annex 1", "Annex 1", "Annex 7"]


def test_cjk_in_pdf_is_read_and_its_lines_join_without_a_space():
    assert "日本語" in read("pikepdf_pdfa__fpdf2_cjk.pdf").text
    lines = [Line("東京都は日本の", 10, 100, 50, 60), Line("首都である。", 10, 80, 38, 48)]
    assert list(page_blocks(lines, usual_spacing(lines))) == ["東京都は日本の首都である。"]


def test_damaged_pdfs_are_read_as_far_as_they_go_or_refused():
    assert shown(read("pikepdf_content-stream-errors.pdf")) == ["Potato"] * 4
    assert reason_of("a.pdf", (DATA / "pikepdf_cyclic-toc.pdf").read_bytes()) == "no_text"
    assert reason_of("a.pdf", b"%PDF-1.7 and nothing more") == "malformed"
    whole = (DATA / "pikepdf_outlines.pdf").read_bytes()
    assert reason_of("a.pdf", whole[:300]) == "malformed"


def rc4(key, data):
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    result, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        result.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(result)


def encrypted_pdf(password):
    """Make a one-page PDF encrypted with the standard handler, revision 2 (PDF 1.7, 7.6.3)."""
    identity, permissions = b"0123456789abcdef", -4
    user = (password + PADDING)[:32]
    owner_key = hashlib.md5((b"owner" + PADDING)[:32]).digest()[:5]
    owner = rc4(owner_key, user)
    key = hashlib.md5(user + owner + permissions.to_bytes(4, "little", signed=True) + identity).digest()[:5]
    content = b"BT /F1 24 Tf 72 700 Td (Secret words) Tj ET"
    object_key = hashlib.md5(key + (4).to_bytes(3, "little") + (0).to_bytes(2, "little")).digest()[:10]
    stream = rc4(object_key, content)
    resources = b"<< /Font << /F1 5 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources %s >>" % resources,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P %d >>"
        % (owner.hex().encode(), rc4(key, PADDING).hex().encode(), permissions),
    ]
    body, offsets = b"%PDF-1.4\n", []
    for number, entry in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, entry)
    table = b"xref\n0 7\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer << /Size 7 /Root 1 0 R /Encrypt 6 0 R /ID [<%s> <%s>] >>\n" % ((identity.hex().encode(),) * 2)
    return body + table + trailer + b"startxref\n%d\n%%%%EOF" % len(body)


def test_a_pdf_encrypted_with_the_empty_password_is_read():
    assert read_document("a.pdf", encrypted_pdf(b"")).text == "Secret words"


def test_a_pdf_that_needs_a_password_is_refused():
    assert reason_of("a.pdf", encrypted_pdf(b"user")) == "encrypted"
