"""Options of the assembly are fields of its request, and only those that leave the measurement what it is."""

from __future__ import annotations

import pytest

from strata.assembly.schemas import EvidenceRequest
from strata.errors import StrataError
from strata.evaluate.options import ASSEMBLY_OPTIONS, parse_options


def test_every_option_is_a_field_of_the_request():
    assert set(ASSEMBLY_OPTIONS) <= set(EvidenceRequest.__struct_fields__)


def test_options_are_taken_as_they_are():
    assert parse_options('{"labels": ["a"], "extracts": true, "activate_limit": 3}') == {
        "labels": ["a"],
        "extracts": True,
        "activate_limit": 3,
    }
    assert parse_options("{}") == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no JSON object"),
        ("[]", "no JSON object"),
        ("{", "no JSON object"),
        ("\ud800", "no JSON object"),
        ('{"search_limit": 3}', "'search_limit' is no option"),
        ('{"budget": {}}', "'budget' is no option"),
        ('{"contexts": ["c"]}', "'contexts' is no option"),
        ('{"contradictions": "none"}', "contradictions"),
        ('{"anchor_floor": 2}', "anchor_floor"),
        ('{"extracts": null}', "extracts"),
    ],
)
def test_what_is_no_option_is_refused_by_name(text, word):
    with pytest.raises(StrataError) as refused:
        parse_options(text)
    assert word in refused.value.detail
    assert refused.value.pointer == "--assembly-options"
