"""The documentation says what the program does: settings, commands, exit codes, links."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from typer.main import get_command

from strata.cli.base import ExitCode
from strata.cli.main import app
from strata.settings import SPRING_ALIASES, Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def commands():
    """Every command as it is typed, groups included."""
    found = []
    for name, command in get_command(app).commands.items():
        found.append((f"strata {name}", command))
        found += [(f"strata {name} {sub}", child) for sub, child in getattr(command, "commands", {}).items()]
    return found


def anchors(page):
    """The anchors of a page's headings, as the common renderers make them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_setting_has_a_row_and_every_row_a_setting():
    documented = re.findall(r"^\| `(STRATA_\w+)` \|", read("docs/settings.md"), re.MULTILINE)
    assert sorted(documented) == sorted(f"STRATA_{field.upper()}" for field in Settings.__struct_fields__)


def test_documented_defaults_are_the_defaults():
    rows = dict(re.findall(r"^\| `(STRATA_\w+)` \| ([^|]+?) \|", read("docs/settings.md"), re.MULTILINE))
    for field in Settings.__struct_fields__:
        if field == "home":
            continue
        default = getattr(Settings(home=Path("/")), field)
        shown = rows[f"STRATA_{field.upper()}"]
        if _number(default):
            assert float(shown) == default, field
        else:
            words = {None: "none", "": "none", True: "true", False: "false"}
            assert shown == str(words.get(default, default)), field


def _number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_every_spring_name_is_documented():
    rows = dict(re.findall(r"^\| `(\w+)` \| `(STRATA_\w+)` \|", read("docs/settings.md"), re.MULTILINE))
    assert {strata: spring for spring, strata in rows.items()} == dict(SPRING_ALIASES)


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_command_is_documented(name):
    assert re.search(rf"(^|\n)(## )?{re.escape(name)}\b", read("docs/cli.md"))


def test_every_documented_command_exists():
    known = {name for name, _ in commands()}
    blocks = "\n".join(_FENCE.findall(read("docs/cli.md")))
    for line in re.findall(r"^strata .*$", blocks, re.MULTILINE):
        words = line.split()
        assert " ".join(words[:2]) in known, line
        if any(name.startswith(f"{' '.join(words[:2])} ") for name in known):
            assert " ".join(words[:3]) in known, line


@pytest.mark.parametrize(("name", "command"), [(n, c) for n, c in commands() if not hasattr(c, "commands")])
def test_every_command_teaches_by_example(name, command):
    examples = re.findall(r"^  strata .*$", command.help.partition("Examples:")[2], re.MULTILINE)
    assert len(examples) >= 2
    assert all(example.strip().startswith(name) for example in examples)


def test_every_documented_option_exists():
    parameters = [parameter for _, command in commands() for parameter in command.params]
    parameters += get_command(app).params
    options = {"--help"} | {option for each in parameters for option in (*each.opts, *each.secondary_opts)}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", read("docs/cli.md"))) <= options


def test_every_exit_code_is_documented():
    documented = re.findall(r"^\| (\d+) \|", read("docs/cli.md"), re.MULTILINE)
    assert sorted(int(code) for code in documented) == sorted(ExitCode)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page):
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_every_page_is_reached_from_the_index():
    reached, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_relative_to(ROOT / "docs") and target.exists():
                waiting.append(target)
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} == reached


def test_make_help_lists_every_target():
    makefile = read("Makefile")
    targets = set(re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[0].split())
    listed = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert listed == targets


def test_lock_files_name_no_host():
    for name in ("requirements.lock", "package-lock.json"):
        assert "://" not in read(name)


def test_the_answer_in_the_readme_is_true_of_the_documents():
    answer = json.loads(re.search(r"^```json\n(.*?)^```", read("README.md"), re.MULTILINE | re.DOTALL)[1])
    for block in answer["evidenceBlocks"]:
        cited = block["citation"]
        text = (ROOT / "docs" / cited["source"]).read_bytes()[cited["startByte"] : cited["endByte"]]
        assert hashlib.sha256(text).hexdigest() == cited["sha256"]
    assert text.decode().startswith(answer["primary"].removesuffix("..."))


def test_the_question_in_the_readme_is_the_one_that_make_run_prints():
    question = re.search(r"^TRY := (.+)$", read("Makefile"), re.MULTILINE)[1]
    assert json.dumps(question) in read("README.md")
