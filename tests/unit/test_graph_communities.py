"""Communities: connected, nested, complete, and the same however the graph was written."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from strata.graph.communities import MAX_LEVELS, TOP_ASSOCIATIONS, detect
from strata.graph.model import EdgeRows, Graph

NAMES = [f"n{number:02}" for number in range(14)]


def build(facts, chance=None):
    concepts = list(NAMES)
    labels = sorted({fact[1] for fact in facts})
    facts = list(facts)
    if chance is not None:
        for rows in (concepts, labels, facts):
            chance.shuffle(rows)
    concept_ids = {name: number for number, name in enumerate(concepts, 1)}
    label_ids = {name: number for number, name in enumerate(labels, 1)}
    return Graph.build(
        1,
        [(number, name) for name, number in concept_ids.items()],
        [(number, name) for name, number in label_ids.items()],
        [],
        EdgeRows.of(
            [(n, concept_ids[s], label_ids[label], concept_ids[o], w, 1) for n, (s, label, o, w) in enumerate(facts)]
        ),
    )


def told(graph):
    """Spell communities out without positions, which depend on the order of assertion."""
    return [
        (
            c.id,
            c.parent,
            c.concept_count,
            c.members,
            c.children,
            c.fingerprint,
            [(e.subject, e.label, e.object, e.sum) for e in graph.edges(c.top_associations)],
        )
        for c in detect(graph)
    ]


facts = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(["likes", "makes", "schema:type"]),
        st.sampled_from(NAMES),
        st.sampled_from([-0.7, 0.0, 0.1, 0.2, 0.3, 5.0]),
    ),
    max_size=40,
    unique_by=lambda fact: fact[:3],
)


@given(facts, st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_the_order_of_assertion_changes_nothing(facts, seed):
    assert told(build(facts)) == told(build(facts, random.Random(seed)))


@given(facts)
@settings(max_examples=80, deadline=None)
def test_every_level_holds_every_linked_concept_once_in_connected_nested_parts(facts):
    graph = build(facts)
    found = {c.id: c for c in detect(graph)}
    links = [(s, o, abs(w)) for s, label, o, w in facts if w and s != o and label != "schema:type"]
    linked = {name for s, o, _ in links for name in (s, o)}
    members = {}
    for community in found.values():
        own = {member.name for member in community.members}
        for child in community.children:
            assert found[child].parent == community.id
            own |= members[child]
        members[community.id] = own
        assert len(own) == community.concept_count
        reached, grown = {min(own)}, True
        while grown:
            more = {b for s, o, _ in links for a, b in ((s, o), (o, s)) if a in reached and b in own}
            grown = bool(more - reached)
            reached |= more
        assert reached == own
    for level in {c.level for c in found.values()}:
        parts = [members[c.id] for c in found.values() if c.level == level]
        assert sum(map(len, parts)) == len(linked)
        assert set().union(*parts) == linked
        assert [c.id for c in found.values() if c.level == level] == [f"L{level}-{i}" for i in range(len(parts))]
        assert [len(part) for part in parts] == sorted(map(len, parts), reverse=True)
    for leaf in (c for c in found.values() if c.level == 0):
        for member in leaf.members:
            own = members[leaf.id]
            inside = sum(w for s, o, w in links if {s, o} <= own and member.name in (s, o))
            assert abs(member.strength - inside) < 1e-9


def test_two_cliques_joined_by_a_thread_are_two_communities():
    left, right = NAMES[:5], NAMES[5:10]
    facts = [(a, "likes", b, 1.0) for group in (left, right) for a in group for b in group if a < b]
    graph = build([*facts, (left[0], "likes", right[0], 0.1)])
    leaves = [c for c in detect(graph) if c.level == 0]
    assert [{member.name for member in leaf.members} for leaf in leaves] == [set(left), set(right)]
    assert leaves[0].members[0].strength == 4.0
    assert len(leaves[0].top_associations) == 10
    assert leaves[0].id == "L0-0"


def test_a_leaf_shows_its_heaviest_associations_only():
    graph = build([(a, f"l{k}", b, float(k)) for k in range(1, 5) for a in NAMES[:5] for b in NAMES[:5] if a < b])
    leaf = detect(graph)[0]
    assert len(leaf.top_associations) == TOP_ASSOCIATIONS
    assert {edge.label for edge in graph.edges(leaf.top_associations)} == {"l4", "l3", "l2"}


def test_nothing_linked_makes_no_community():
    assert detect(build([])) == []
    assert detect(build([("n00", "likes", "n00", 1.0), ("n01", "likes", "n02", 0.0)])) == []


def test_levels_are_bounded():
    facts = [(a, "likes", b, 1.0) for place, a in enumerate(NAMES) for b in NAMES[place + 1 : place + 2]]
    assert max(c.level for c in detect(build(facts))) < MAX_LEVELS
