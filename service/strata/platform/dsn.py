"""Database addresses in the forms that people have at hand, turned into the one that asyncpg takes."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from strata.errors import INVALID_SETTING, StrataError

_JDBC_TO_LIBPQ = {"sslmode": "sslmode", "currentSchema": "search_path"}
_SCHEMES = {"postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg"}
_SECRETS = (
    re.compile(r"^((?:jdbc:)?[a-z][a-z0-9+.-]*://[^:/?#]*):[^/?#]*(?=@)", re.IGNORECASE),
    re.compile(r"([?&](?:ssl)?password)=[^&#]*", re.IGNORECASE),
)


def normalise_dsn(url: str, user: str | None = None, password: str | None = None) -> str:
    """Return ``url`` as ``postgresql://...``; accepts SQLAlchemy and jdbc forms.

    A user and a password in the query move before the host. ``user`` and ``password`` stand in
    where the URL names none (Spring keeps them apart). Other query parameters stay: asyncpg takes
    those of a connection (``sslmode``, ``host``) and gives the rest to the server as settings
    (``search_path``). Of the jdbc driver's own parameters only ``user``, ``password``, ``sslmode``
    and ``currentSchema`` mean something here; the others are dropped. Raises ``invalid_setting`` for anything else.
    """
    is_jdbc = url.startswith("jdbc:")
    parts = urlsplit(url.removeprefix("jdbc:"))
    if parts.scheme not in _SCHEMES:
        raise StrataError(
            INVALID_SETTING,
            f"STRATA_DATABASE_URL has scheme {parts.scheme or 'none'!r}",
            pointer="STRATA_DATABASE_URL",
            remedy="Use postgresql://user:password@host:5432/database, or jdbc:postgresql://host:5432/database.",
        )
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    asked_name, asked_secret = query.pop("user", None), query.pop("password", None)
    name = unquote(parts.username or "") or asked_name or user
    secret = unquote(parts.password or "") or asked_secret or password
    if is_jdbc:
        query = {target: query[key] for key, target in _JDBC_TO_LIBPQ.items() if key in query}
    host = parts.netloc.rpartition("@")[2]
    credentials = quote(name, safe="") if name else ""
    if secret:
        credentials += ":" + quote(secret, safe="")
    netloc = f"{credentials}@{host}" if credentials else host
    suffix = f"?{urlencode(query)}" if query else ""
    # Written out, since urlunsplit drops the slashes of an empty host (?host=/socket/directory).
    return f"postgresql://{netloc}{parts.path}{suffix}"


def redact_dsn(dsn: str) -> str:
    """Return the address in any form without its passwords, fit for logs and for people."""
    credentials, parameter = _SECRETS
    return parameter.sub(r"\1=***", credentials.sub(r"\1:***", dsn))


def with_database(dsn: str, name: str) -> str:
    """Return the address of another database on the same server."""
    parts = urlsplit(normalise_dsn(dsn))
    suffix = f"?{parts.query}" if parts.query else ""
    return f"postgresql://{parts.netloc}/{quote(name, safe='')}{suffix}"
