"""The public client of either kind under one way to call it, with a note of every method called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taguru import AsyncContext, AsyncContexts, AsyncGroups, AsyncTaguru, Context, Contexts, Groups, Taguru

Steps = Callable[["World"], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Scenario:
    """Steps against a server, and the methods of the client that they are there for."""

    name: str
    methods: frozenset[str]
    steps: Steps


SCENARIOS: list[Scenario] = []
KINDS = {
    "sync": {"client": Taguru, "contexts": Contexts, "groups": Groups, "context": Context},
    "async": {"client": AsyncTaguru, "contexts": AsyncContexts, "groups": AsyncGroups, "context": AsyncContext},
}


def scenario(*methods: str) -> Callable[[Steps], Steps]:
    """Add a scenario that stands for ``methods``: ``client.flush``, ``contexts.get``, ``context.query``."""

    def add(steps: Steps) -> Steps:
        SCENARIOS.append(Scenario(steps.__name__, frozenset(methods), steps))
        return steps

    return add


def surface(kind: str) -> set[str]:
    """Return every public method of the client: ``owner.method``."""
    return {
        f"{owner}.{method}"
        for owner, cls in KINDS[kind].items()
        for method, member in inspect.getmembers(cls)
        if callable(member) and not method.startswith("_")
    }


class Awaited:
    """A client, or a part of one, whose every method is awaited and whose every iterator is asynchronous."""

    def __init__(self, target: Any, owner: str, called: set[str]) -> None:
        self._target = target
        self._owner = owner
        self._called = called

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._target, name)
        if name in ("contexts", "groups"):
            return Awaited(member, name, self._called)
        if not callable(member):
            return member

        def call(*arguments: Any, **options: Any) -> Any:
            self._called.add(f"{self._owner}.{name}")
            if name == "context":
                return Awaited(member(*arguments, **options), "context", self._called)
            if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
                return member(*arguments, **options)
            later = _stepped if inspect.isgeneratorfunction(member) else _done
            return later(member, arguments, options)

        return call


async def _done(member: Any, arguments: Any, options: Any) -> Any:
    return member(*arguments, **options)


async def _stepped(member: Any, arguments: Any, options: Any) -> Any:
    for value in member(*arguments, **options):
        yield value


@dataclass
class World:
    """What a scenario has: a client, a name of its own, a folder, and how to open another client."""

    client: Any
    name: str
    folder: Path
    connect: Callable[..., Any]
    called: set[str] = field(default_factory=set)

    @property
    def context(self) -> Any:
        """The handle on the context of the scenario's name."""
        return self.client.context(self.name)

    async def made(self, **options: Any) -> Any:
        """Create the context of the scenario's name; return its handle."""
        await self.client.contexts.create(self.name, **options)
        return self.context


def world(connect: Callable[..., Any], name: str, folder: Path) -> World:
    """Return a world over ``connect(**options)``, which opens a client of either kind."""
    called: set[str] = set()

    def open_client(**options: Any) -> Awaited:
        return Awaited(connect(**options), "client", called)

    return World(client=open_client(), name=name, folder=folder, connect=open_client, called=called)


async def listed(iterator: Any) -> list[Any]:
    """Return all that an asynchronous iterator gives."""
    return [value async for value in iterator]
