"""Logging: structlog on top of the standard library, to standard error, without secrets.

An exception is logged with its types and frames but not with its message, unless the message is
ours: a driver's message may quote a document, and a log is read by more people than a database.
STRATA_LOG_LEVEL=debug logs messages too.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from strata.errors import StrataError
from strata.platform.telemetry import current_ids
from strata.settings import Settings

_SECRET_KEY = re.compile(
    r"(?:^|[_.-])(authorization|password|passwd|secret|token|api[_-]?key|cookie|credentials?)(?:$|[_.-])", re.IGNORECASE
)
_URL_SECRET = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/]+(?=@)", re.IGNORECASE)
_PARAMETER_SECRET = re.compile(
    r"(?P<head>(?:password|passwd|pwd|secret|token|api[_-]?key|sslpassword)[\"']?\s*[=:]\s*[\"']?)[^\s&,;\"'}]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<head>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_MASK = "***"


def redact(text: str) -> str:
    """Return the text with passwords in addresses, bearer tokens and ``password=`` values masked."""
    for pattern in (_URL_SECRET, _BEARER, _PARAMETER_SECRET):
        text = pattern.sub(rf"\g<head>{_MASK}", text)
    return text


def setup_logging(settings: Settings) -> None:
    """Configure structlog and the standard library's loggers; calling it again replaces the former."""
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
        _add_trace,
        ExceptionWithoutText(with_messages=level <= logging.DEBUG),
        _redact_event,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _encodable_event, renderer],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, structlog.stdlib.ProcessorFormatter):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for chatty in ("asyncio", "opentelemetry", "urllib3", "alembic", "_granian", "granian.access"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))


class ExceptionWithoutText:
    """Processor: replace ``exc_info`` by types and frames; messages only where they are ours."""

    def __init__(self, *, with_messages: bool) -> None:
        self._with_messages = with_messages

    def __call__(self, _logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
        """Process one event."""
        info = event.pop("exc_info", None)
        if info is True:
            info = sys.exc_info()
        error = info[1] if isinstance(info, tuple) else info
        if isinstance(error, BaseException):
            event["exception"] = "\n".join(self._chain(error))
        return event

    def _chain(self, error: BaseException) -> list[str]:
        parts: list[str] = []
        seen: set[int] = set()
        current: BaseException | None = error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            name = f"{type(current).__module__}.{type(current).__qualname__}"
            if self._with_messages or isinstance(current, StrataError):
                name = f"{name}: {current}"
            parts.append(name + "\n" + "".join(traceback.format_tb(current.__traceback__)).rstrip())
            current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        return parts


def _add_trace(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    trace_id, span_id = current_ids()
    if trace_id.strip("0"):
        event.setdefault("trace_id", trace_id)
        event.setdefault("span_id", span_id)
    return event


def _redact_event(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    return {key: _redacted(key, value) for key, value in event.items()}


def _redacted(key: str, value: Any) -> Any:
    if _SECRET_KEY.search(str(key)):
        return _MASK
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), item) for name, item in value.items()}
    if isinstance(value, (list, tuple)) and not key.startswith("_"):
        return [_redacted(key, item) for item in value]
    return value


def _encodable_event(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Escape lone surrogates: a log line that cannot be written would raise in the caller."""
    return {
        key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for key, value in event.items()
    }
