"""schemathesis over the OpenAPI document: whatever it sends, the answer is one that the document states."""

import asyncio
import threading

import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from schemathesis.checks import not_a_server_error

from strata.app import create_app

pytestmark = [pytest.mark.database, pytest.mark.slow]
