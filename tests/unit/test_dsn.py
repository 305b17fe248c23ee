"""Database addresses: every form becomes the one that asyncpg takes, and no password is shown."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.errors import INVALID_SETTING, StrataError
from strata.platform.dsn import normalise_dsn, redact_dsn, with_database

SCHEMES = ("postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg", "jdbc:postgresql")
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_credentials_in_the_query_move_before_the_host(scheme):
    url = f"{scheme}://db:5433/app?user=u&password=se%26cret&sslmode=require"
    assert normalise_dsn(url) == "postgresql://u:se%26cret@db:5433/app?sslmode=require"


def test_credentials_before_the_host_win_over_the_query_and_the_query_over_the_settings():
    assert normalise_dsn("postgresql://a:b@h/d?user=c&password=d", "e", "f") == "postgresql://a:b@h/d"
    assert normalise_dsn("postgresql://h/d?user=c&password=d", "e", "f") == "postgresql://c:d@h/d"
    assert normalise_dsn("postgresql://h/d?user=&password=", "e", "f") == "postgresql://e:f@h/d"


def test_a_socket_directory_and_the_settings_of_the_server_stay_in_the_query():
    dsn = normalise_dsn("postgresql:///d?host=/run/pg&search_path=app&password=s&user=u")
    assert dsn == "postgresql://u:s@/d?host=%2Frun%2Fpg&search_path=app"
    assert with_database(dsn, "other") == "postgresql://u:s@/other?host=%2Frun%2Fpg&search_path=app"


def test_the_schema_of_jdbc_is_the_search_path_and_its_other_parameters_are_dropped():
    url = "jdbc:postgresql://h/d?currentSchema=app&prepareThreshold=0&user=u"
    assert normalise_dsn(url) == "postgresql://u@h/d?search_path=app"


@pytest.mark.parametrize("url", ["", "db", "mysql://h/d", "jdbc:mysql://h/d?password=s3cret"])
def test_another_scheme_is_refused_without_a_word_of_the_password(url):
    with pytest.raises(StrataError) as raised:
        normalise_dsn(url)
    assert raised.value.kind is INVALID_SETTING
    assert "s3cret" not in raised.value.detail


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:s3cret@h:1/d", "postgresql://u:***@h:1/d"),
        ("postgresql://:s3cret@/d?host=/run", "postgresql://:***@/d?host=/run"),
        ("postgresql://u:a@b:s3cret@h/d", "postgresql://u:***@h/d"),
        ("jdbc:postgresql://u:s3cret@h/d?user=u", "jdbc:postgresql://u:***@h/d?user=u"),
        ("postgresql:///d?host=/run&password=s3cret&user=u", "postgresql:///d?host=/run&password=***&user=u"),
        ("postgresql://h/d?Password=s3cret", "postgresql://h/d?Password=***"),
        ("postgresql://u@h/d?sslpassword=s3cret", "postgresql://u@h/d?sslpassword=***"),
        ("postgresql://u@h:5432/d?sslmode=require", "postgresql://u@h:5432/d?sslmode=require"),
        ("", ""),
    ],
)
def test_no_password_is_shown(dsn, shown):
    assert redact_dsn(dsn) == shown


@given(scheme=st.sampled_from(SCHEMES), user=TEXT, secret=TEXT, in_query=st.booleans())
def test_any_credentials_survive_and_are_never_shown(scheme, user, secret, in_query):
    quoted, hidden = quote(user, safe=""), quote(secret, safe="")
    rest = f"h/d?user={quoted}&password={hidden}" if in_query else f"{quoted}:{hidden}@h/d"
    dsn = normalise_dsn(f"{scheme}://{rest}")
    parts = urlsplit(dsn)
    assert (unquote(parts.username), unquote(parts.password)) == (user, secret)
    assert parse_qs(parts.query) == {}
    assert normalise_dsn(dsn) == dsn
    assert redact_dsn(dsn) == f"postgresql://{quoted}:***@h/d"
