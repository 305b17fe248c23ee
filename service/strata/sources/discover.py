"""Find what an ingest run is to read: files of known formats below the roots, in one fixed order."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from strata.errors import SOURCE_REFUSED, StrataError
from strata.sources.model import Refused, Stage, Task
from strata.sources.paths import clean_id, clean_path
from strata.sources.readers import FORMATS, LineProblem, is_beir, iter_beir, refuse

BEIR_CORPUS = "corpus.jsonl"

Report = Callable[[Refused], None]
"""Takes what was not taken in, as it is found."""

_KNOWN = frozenset(extension for entry in FORMATS.values() for extension in entry.extensions)
_LINES = frozenset(FORMATS["jsonl"].extensions)
_HEAD_BYTES = 64 * 1024
_COUNT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read: ``path`` within its root, ``origin`` that root, ``size`` in bytes.

    ``prefix`` stands before the ids of a corpus (``is_corpus``), whose ``records`` are its lines.
    """

    file: str
    path: str
    origin: str
    size: int
    is_corpus: bool = False
    prefix: str = ""
    records: int = 1


@dataclass(slots=True)
class Survey:
    """All that the roots hold. ``skipped`` counts what was passed over, by extension or cause.

    ``prunable`` are the origins that were walked whole: what they no longer hold has vanished.
    """

    found: list[Found] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    prunable: list[str] = field(default_factory=list)

    def skip(self, cause: str) -> None:
        """Count one thing that was passed over."""
        self.skipped[cause] = self.skipped.get(cause, 0) + 1


def survey(roots: Iterable[Path]) -> Survey:
    """Walk the roots in the order given; the files of a folder come by name, then its folders by name.

    A folder is walked whole: hidden names are passed over, a folder is entered once however many
    links lead to it, unknown extensions are counted. A folder with ``corpus.jsonl`` beside
    ``queries.jsonl`` is a judged set: only its corpus is read. A file that is named is tried
    whatever its name. What cannot be read is refused with its reason, and its root is not pruned;
    nor is one with a link that leads nowhere: what it led to may be away for a while only.
    """
    result = Survey()
    for root in roots:
        # Not resolved: the origin stays what the caller named when a link is moved.
        absolute = Path(os.path.abspath(root))  # noqa: PTH100
        try:
            status = absolute.stat()
        except (OSError, ValueError) as error:
            result.refused.append(_unreadable(str(root), error))
            continue
        if stat.S_ISDIR(status.st_mode):
            _Walk(absolute, result).run(status)
        elif stat.S_ISREG(status.st_mode):
            entry = _found(absolute, absolute.name, str(absolute.parent), status.st_size, result, is_root=True)
            if entry is not None:
                result.found.append(entry)
                if entry.is_corpus:
                    result.prunable.append(entry.origin)
        else:
            result.refused.append(_not_a_file(str(root)))
    return result


class _Walk:
    """One walk over one folder, which knows the folders it has entered."""

    def __init__(self, root: Path, result: Survey) -> None:
        self.root = root
        self.result = result
        self.entered: set[tuple[int, int]] = set()
        self.is_whole = True

    def run(self, status: os.stat_result) -> None:
        self.entered.add((status.st_dev, status.st_ino))
        pending = [self.root]
        while pending:
            folder = pending.pop()
            pending.extend(reversed(self._folder(folder)))
        if self.is_whole:
            self.result.prunable.append(str(self.root))

    def _folder(self, folder: Path) -> list[Path]:
        """Take in the files of one folder and return the folders in it, by name."""
        try:
            names = sorted(entry.name for entry in os.scandir(folder))
        except OSError as error:
            self._refuse(folder, error)
            return []
        if BEIR_CORPUS in names and "queries.jsonl" in names:
            for _ in range(len(names) - 1):
                self.result.skip("beside a corpus")
            names = [BEIR_CORPUS]
        paths = (folder / name for name in names if not name.startswith("."))
        return [path for path in paths if self._is_new_folder(path)]

    def _is_new_folder(self, path: Path) -> bool:
        """Tell whether a path is a folder to enter; take it in when it is a file."""
        try:
            status = path.stat()
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ELOOP}:
                self.result.skip("broken link")
                self.is_whole = self.is_whole and not path.is_symlink()
            else:
                self._refuse(path, error)
            return False
        if stat.S_ISDIR(status.st_mode):
            return self._enters(status)
        if stat.S_ISREG(status.st_mode):
            self._file(path, status.st_size)
        else:
            self.result.skip("not a file")
        return False

    def _enters(self, status: os.stat_result) -> bool:
        identity = (status.st_dev, status.st_ino)
        if identity in self.entered:
            self.result.skip("link to a folder that was read")
            return False
        self.entered.add(identity)
        return True

    def _file(self, path: Path, size: int) -> None:
        suffix = path.suffix.lower()
        if suffix not in _KNOWN:
            self.result.skip(suffix or "no extension")
            return
        before = len(self.result.refused)
        entry = _found(path, path.relative_to(self.root).as_posix(), str(self.root), size, self.result)
        self.is_whole = self.is_whole and len(self.result.refused) == before
        if entry is not None:
            self.result.found.append(entry)

    def _refuse(self, path: Path, error: OSError) -> None:
        self.is_whole = False
        self.result.refused.append(_unreadable(path.relative_to(self.root).as_posix(), error))


def _found(file: Path, name: str, origin: str, size: int, result: Survey, *, is_root: bool = False) -> Found | None:
    if file.suffix.lower() not in _LINES:
        return Found(str(file), name, origin, size)
    try:
        with file.open("rb") as stream:
            if not is_beir(stream.read(_HEAD_BYTES)):
                return Found(str(file), name, origin, size)
            stream.seek(0)
            records = _count_lines(stream)
    except OSError as error:
        result.refused.append(_unreadable(name, error))
        return None
    folder = PurePosixPath(name).parent.as_posix()
    return Found(
        str(file),
        name,
        str(file) if is_root else origin,
        size,
        is_corpus=True,
        prefix="" if folder == "." else f"{folder}/",
        records=records,
    )


def _count_lines(stream: BinaryIO) -> int:
    lines, last = 0, b"\n"
    while block := stream.read(_COUNT_BYTES):
        lines += block.count(b"\n")
        last = block[-1:]
    return lines + (last != b"\n")


def tasks_of(entry: Found, report: Report) -> Iterator[Task]:
    """Yield the sources in a file: itself, or each record of a corpus; what is none is reported."""
    if entry.is_corpus:
        yield from corpus_tasks(Path(entry.file), entry.path, report, origin=entry.origin, prefix=entry.prefix)
        return
    changes: dict[str, int] = {}
    try:
        path = clean_path(entry.path, changes)
    except StrataError as error:
        report(refusal(entry.path, error, "find", size=entry.size))
        return
    yield Task(path=path, size=entry.size, file=entry.file, origin=entry.origin, changes=changes)


def corpus_tasks(
    corpus: Path | bytes, name: str, report: Report, *, origin: str = "", prefix: str = "", pointer: str | None = None
) -> Iterator[Task]:
    """Yield a source for each record of a corpus; ``name`` and ``pointer`` are said of lines that are none."""
    problems: list[LineProblem] = []
    try:
        for record in iter_beir(corpus, problems):
            changes: dict[str, int] = {}
            size = len(record.text) + len(record.title) + len(record.id)
            try:
                path = clean_id(f"{prefix}{record.id}", changes)
            except StrataError as error:
                report(refusal(f"{name}#{record.line}", error, "find", pointer=pointer))
                continue
            yield Task(path=path, size=size, record=record, origin=origin, pointer=pointer, changes=changes)
            _report_lines(problems, name, pointer, report)
    except OSError as error:
        report(_unreadable(name, error))
    _report_lines(problems, name, pointer, report)


def _report_lines(problems: list[LineProblem], name: str, pointer: str | None, report: Report) -> None:
    for problem in problems:
        error = refuse("malformed", problem.detail)
        report(refusal(f"{name}#{problem.line}", error, "parse", pointer=pointer))
    problems.clear()


def refusal(path: str, error: StrataError, stage: Stage, *, pointer: str | None = None, size: int = 0) -> Refused:
    """Return an error as the fate of one source."""
    return Refused(
        path=path.encode("utf-8", "replace").decode(),
        code=error.code,
        reason=str(error.extra.get("reason", error.code)),
        detail=error.detail,
        stage=stage,
        remedy=error.remedy,
        pointer=error.pointer or pointer,
        size=size,
    )


def unreadable(error: OSError | ValueError) -> StrataError:
    """Return the error that stands for a file that cannot be read; no path of this machine is in it."""
    return StrataError(
        SOURCE_REFUSED,
        f"The file cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}.",
        remedy="Check that it exists and that this user may read it.",
        extra={"reason": "unreadable"},
    )


def _unreadable(path: str, error: OSError | ValueError) -> Refused:
    return refusal(path, unreadable(error), "find")


def _not_a_file(path: str) -> Refused:
    error = StrataError(
        SOURCE_REFUSED,
        "It is neither a file nor a folder.",
        remedy="Name a file or a folder.",
        extra={"reason": "not_a_file"},
    )
    return refusal(path, error, "find")
