"""Database addresses in the forms that people have at hand, turned into the one that asyncpg takes."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from strata.errors import INVALID_SETTING, StrataError

_JDBC_TO_LIBPQ = {"user": None, "password": None, "sslmode": "sslmode", "currentSchema": "search_path"}
_SCHEMES = {"postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg"}


def normalise_dsn(url: str, user: str | None = None, password: str | None = None) -> str:
    """Return ``url`` as ``postgresql://...``; accepts SQLAlchemy and jdbc forms.

    ``user`` and ``password`` stand in where the URL names none (Spring keeps them apart). Of the
    jdbc driver's own parameters only ``user``, ``password``, ``sslmode`` and ``currentSchema``
    mean something here; the others are dropped. Raises ``invalid_setting`` for anything else.
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
    name = unquote(parts.username or "") or (query.get("user") if is_jdbc else None) or user
    secret = unquote(parts.password or "") or (query.get("password") if is_jdbc else None) or password
    if is_jdbc:
        query = {target: query[key] for key, target in _JDBC_TO_LIBPQ.items() if target and key in query}
    host = parts.netloc.rpartition("@")[2]
    credentials = quote(name, safe="") if name else ""
    if secret:
        credentials += ":" + quote(secret, safe="")
    netloc = f"{credentials}@{host}" if credentials else host
    suffix = f"?{urlencode(query)}" if query else ""
    # Written out, since urlunsplit drops the slashes of an empty host (?host=/socket/directory).
    return f"postgresql://{netloc}{parts.path}{suffix}"


def redact_dsn(dsn: str) -> str:
    """Return the address without its password, fit for logs and for people."""
    parts = urlsplit(dsn)
    if parts.password is None:
        return dsn
    netloc = parts.netloc.replace(f":{parts.netloc.rpartition('@')[0].partition(':')[2]}@", ":***@", 1)
    return urlunsplit(parts._replace(netloc=netloc))


def with_database(dsn: str, name: str) -> str:
    """Return the address of another database on the same server."""
    parts = urlsplit(normalise_dsn(dsn))
    suffix = f"?{parts.query}" if parts.query else ""
    return f"postgresql://{parts.netloc}/{quote(name, safe='')}{suffix}"
