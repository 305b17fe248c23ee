"""One ingest run: tasks in, batches built beside each other, written one after the other."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from strata.errors import SOURCE_REFUSED, StrataError
from strata.knowledge.model import ContextRow
from strata.sources.build import Batch, Loaded, load
from strata.sources.discover import refusal
from strata.sources.model import Refused, Same, Task
from strata.sources.schemas import MAX_OUTCOMES, IngestReport, Progress, RefusalView, SourceOutcome
from strata.sources.store import Store, Written
from strata.sources.workers import Workers
from strata.text.normalise import add_changes

PARALLEL_BYTES = 4 * 1024 * 1024
"""From here on worker processes are started: one costs about a second."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one transaction takes in at most. A larger document is a batch of its own."""

    documents: int
    bytes: int

    def first(self) -> Limits:
        """Return the limits of a run's first batch."""
        return Limits(min(self.documents, _FIRST.documents), min(self.bytes, _FIRST.bytes))

    def doubled(self, ceiling: Limits) -> Limits:
        """Return twice as much, within the ceiling."""
        return Limits(min(2 * self.documents, ceiling.documents), min(2 * self.bytes, ceiling.bytes))


_FIRST = Limits(documents=125, bytes=192 * 1024)
# A run of its own wants few transactions; inside the service a batch must not hold the event loop.
BULK = Limits(documents=2000, bytes=3 * 1024 * 1024)
ONLINE = Limits(documents=100, bytes=256 * 1024)


class Tally:
    """Counts what a run does, and keeps the first thousand outcomes."""

    def __init__(
        self, progress: Callable[[Progress], None] | None = None, total: int = 0, bytes_total: int = 0
    ) -> None:
        self._progress = progress
        self._started = time.monotonic()
        self.total, self.bytes_total = total, bytes_total
        self.added = self.replaced = self.unchanged = self.refused = self.pruned = 0
        self.passages = self.bytes_written = self.bytes_done = 0
        self.normalisation: dict[str, int] = {}
        self.outcomes: list[SourceOutcome] = []
        self.refusals: list[RefusalView] = []
        self._seen: set[bytes] = set()

    def refuse(self, refused: Refused) -> None:
        """Count a refusal."""
        self.refused += 1
        self.bytes_done += refused.size
        if len(self.refusals) < MAX_OUTCOMES:
            self.refusals.append(RefusalView.of(refused))

    def see(self, path: str) -> bool:
        """Note that a run holds a path; False when it held it before."""
        digest = _digest(path)
        is_new = digest not in self._seen
        self._seen.add(digest)
        return is_new

    def has_seen(self, path: str) -> bool:
        """Tell whether the run holds a path."""
        return _digest(path) in self._seen

    def same(self, same: Same) -> None:
        """Count a source that needs no change."""
        self.unchanged += 1
        self.bytes_done += same.size
        self._keep(
            SourceOutcome(path=same.path, status="UNCHANGED", id=same.known.source_id, revision=same.known.revision)
        )

    def prune(self, path: str, source: UUID, revision: int) -> None:
        """Count a source that vanished."""
        self.pruned += 1
        self._keep(SourceOutcome(path=path, status="PRUNED", id=source, revision=revision))

    def take(self, written: Written) -> None:
        """Count what a transaction did."""
        for placed, revision in written.placed:
            source = placed.source
            self.added += revision == 1
            self.replaced += revision > 1
            self.passages += len(source.passages)
            self.bytes_written += len(source.content)
            self.bytes_done += source.size
            add_changes(self.normalisation, source.normalisation)
            self._keep(
                SourceOutcome(
                    path=source.path,
                    status="ADDED" if revision == 1 else "REPLACED",
                    id=placed.source_id,
                    revision=revision,
                    passages=len(source.passages),
                    normalisation=dict(source.normalisation),
                    warnings=list(source.warnings),
                )
            )
        for same in written.same:
            self.same(same)
        for refused in written.refused:
            self.refuse(refused)

    def tell(self) -> None:
        """Report where the run stands to whoever asked."""
        if self._progress is not None:
            done = self.added + self.replaced + self.unchanged + self.refused
            self._progress(
                Progress(
                    done=done,
                    total=max(done, self.total),
                    failed=self.refused,
                    unchanged=self.unchanged,
                    bytes_done=self.bytes_done,
                    bytes_total=max(self.bytes_done, self.bytes_total),
                    passages=self.passages,
                )
            )

    def report(self, context: ContextRow | None, name: str, skipped: Mapping[str, int]) -> IngestReport:
        """Return the run as its caller gets it."""
        return IngestReport(
            context_id=context.context_id if context else None,
            context=context.name if context else name,
            added=self.added,
            replaced=self.replaced,
            unchanged=self.unchanged,
            refused=self.refused,
            pruned=self.pruned,
            passages=self.passages,
            bytes=self.bytes_written,
            seconds=round(time.monotonic() - self._started, 3),
            normalisation={name: self.normalisation[name] for name in sorted(self.normalisation)},
            skipped={cause: skipped[cause] for cause in sorted(skipped)},
            outcomes=self.outcomes,
            refusals=self.refusals,
        )

    def _keep(self, outcome: SourceOutcome) -> None:
        if len(self.outcomes) < MAX_OUTCOMES:
            self.outcomes.append(outcome)


def _digest(path: str) -> bytes:
    return hashlib.blake2b(path.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Run:
    """What a run needs beside its tasks."""

    tenant: UUID
    context: ContextRow
    limits: Limits
    processes: int
    max_bytes: int
    is_patient: bool


class Pipeline:
    """Loads and builds batches ahead of the one that is being written, a bounded number of them."""

    def __init__(self, store: Store, workers: Workers, run: Run, tally: Tally) -> None:
        self._store = store
        self._workers = workers
        self._run = run
        self._tally = tally

    async def ingest(self, tasks: Iterator[Task], after_write: Callable[[], Awaitable[None]]) -> None:
        """Take in all tasks; what was written stays when it fails or is cancelled on the way.

        ``after_write`` is called after each transaction that changed something.
        """
        ahead: deque[asyncio.Task[Batch]] = deque()
        chunks = self._chunks(tasks)
        is_open = True
        try:
            while is_open or ahead:
                while is_open and len(ahead) <= self._run.processes:
                    chunk = await asyncio.to_thread(next, chunks, None)
                    if chunk is None:
                        is_open = False
                    else:
                        ahead.append(asyncio.create_task(self._prepare(chunk)))
                if ahead:
                    batch = await ahead[0]
                    ahead.popleft()
                    if await self._write(batch):
                        await after_write()
                self._tally.tell()
        finally:
            for task in ahead:
                task.cancel()
            await asyncio.gather(*ahead, return_exceptions=True)

    def _chunks(self, tasks: Iterator[Task]) -> Iterator[list[Task]]:
        """Cut the tasks into batches by count and bytes; a path that comes again is refused.

        The first batches are small and each is twice the one before, up to the limits of the run:
        something is in the database and on the progress bar soon.
        """
        chunk: list[Task] = []
        size = 0
        limits = self._run.limits.first()
        for task in tasks:
            if not self._tally.see(task.path):
                self._tally.refuse(_duplicate(task))
                continue
            if chunk and (len(chunk) >= limits.documents or size + task.size > limits.bytes):
                yield chunk
                chunk, size = [], 0
                limits = limits.doubled(self._run.limits)
            chunk.append(task)
            size += task.size
        if chunk:
            yield chunk

    async def _prepare(self, chunk: list[Task]) -> Batch:
        run = self._run
        paths = [task.path for task in chunk]
        known = await self._store.known(run.tenant, run.context.context_id, paths, is_patient=run.is_patient)
        tasks = [replace(task, known=known.get(task.path)) for task in chunk]
        outcomes = await asyncio.to_thread(lambda: [load(task, run.max_bytes) for task in tasks])
        loaded = [outcome for outcome in outcomes if isinstance(outcome, Loaded)]
        read = await asyncio.gather(*(self._read(item) for item in loaded))
        batch = await self._workers.build([item for item in read if isinstance(item, Loaded)], run.processes)
        return Batch(
            built=batch.built,
            refused=(
                *(outcome for outcome in outcomes if isinstance(outcome, Refused)),
                *(item for item in read if isinstance(item, Refused)),
                *batch.refused,
            ),
            same=[outcome for outcome in outcomes if isinstance(outcome, Same)],
            segments=batch.segments,
        )

    async def _read(self, loaded: Loaded) -> Loaded | Refused:
        """Have a format that can take a process down read in the sandbox; others are read where they are built."""
        if not loaded.is_isolated:
            return loaded
        task = loaded.task
        try:
            document = await self._workers.readers.read(task.path, loaded.data, task.given.media_type)
        except StrataError as error:
            return refusal(task.path, error, "parse", pointer=task.pointer, size=task.size)
        return replace(loaded, data=b"", document=document)

    async def _write(self, batch: Batch) -> bool:
        run = self._run
        for refused in batch.refused:
            self._tally.refuse(refused)
        for same in batch.same:
            self._tally.same(same)
        moved = [
            (same.known.source_id, same.origin) for same in batch.same if same.origin not in {"", same.known.origin}
        ]
        if moved:
            await self._store.set_origins(run.tenant, run.context.context_id, moved, is_patient=run.is_patient)
        if not batch.built:
            return False
        written = await self._store.write(run.tenant, run.context.context_id, batch, is_patient=run.is_patient)
        self._tally.take(written)
        return bool(written.placed)


def _duplicate(task: Task) -> Refused:
    error = StrataError(
        SOURCE_REFUSED,
        "An earlier document of this run has the same path; the first one counts.",
        remedy="Give each document a path of its own.",
        extra={"reason": "duplicate_path"},
    )
    return refusal(task.path, error, "find", pointer=task.pointer, size=task.size)
