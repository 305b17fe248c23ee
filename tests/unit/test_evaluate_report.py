"""The tables of the benchmarks say what was measured, what was not, and with which vectors."""

from __future__ import annotations

from strata.evaluate.bench import Results, judged_sets, markdown
from strata.evaluate.coverage import Coverage
from strata.evaluate.fit import KindLevels, LevelsReport, SetLevels
from strata.evaluate.packages import PackageCoverage
from strata.evaluate.pool import PoolTimes
from strata.evaluate.quality import Means, Quality
from strata.evaluate.report import coverage_table, levels_table, package_table, pool_table, quality_tables, scale_tables
from strata.evaluate.scale import Memory, Row
from strata.settings import load_settings


def quality(name="one", within=None, **lanes):
    means = {lane: Means(ndcg_at_10=value, recall_at_100=1.0) for lane, value in lanes.items()}
    return Quality(name=name, questions=7, within=within, lanes=means)


def test_lanes_are_columns_in_order_and_a_missing_figure_is_blank():
    text = quality_tables([quality(bm25s=0.5, hybrid=0.75, lexical=0.6), quality("two", "meeting", lexical=0.25)])
    lines = text.splitlines()
    assert lines[0] == "| nDCG@10 by set | questions | bm25s | lexical | hybrid |"
    assert lines[2] == "| one | 7 | 0.5000 | 0.6000 | 0.7500 |"
    assert lines[3] == "| two, inside one meeting | 7 |  | 0.2500 |  |"


def test_coverage_is_a_row_for_each_way():
    shares = {"bm25s": {1000: 0.5, 2000: 0.75}, "lookup": {1000: 0.6, 2000: 1.0}}
    item = Quality(
        name="hops",
        questions=3,
        within=None,
        lanes={},
        coverage=Coverage(questions=3, shares=shares, left_out={}),
    )
    assert coverage_table(item).splitlines()[0] == "| all gold inside so many tokens, hops | 1,000 | 2,000 |"
    assert "| lookup | 0.6000 | 1.0000 |" in coverage_table(item)


def test_packages_are_a_row_for_each_way():
    shares = {"plain top-k": {1000: 0.5, 4000: 0.75}, "assembly": {1000: 0.6, 4000: 1.0}}
    lines = package_table(PackageCoverage(name="hops", questions=3, shares=shares)).splitlines()
    assert lines[0] == "| all gold in a package of so many tokens, hops | 1,000 | 4,000 |"
    assert lines[3] == "| assembly | 0.6000 | 1.0000 |"


def test_an_assembly_stands_beside_the_comparison_of_each_with_each():
    times = PoolTimes(
        candidates=1000, kept=15, duplicates=9, fuse_ms=3, duplicates_ms=24, selection_ms=12, whole_ms=39, naive_ms=1952
    )
    assert pool_table(times).splitlines()[2] == "| 1,000 | 9 | 15 | 3.0 | 24.0 | 12.0 | 39.0 | 1,952.0 |"


def test_levels_have_a_mean_over_the_sets_that_have_the_kind():
    def levels(high, precision):
        return KindLevels(questions=5, high=high, medium=0.2, low=0.1, none=0.0, high_precision=precision)

    sets = [
        SetLevels(name="one", kinds={"answerable": levels(0.4, 0.9), "foreign": levels(0.02, None)}),
        SetLevels(name="two", kinds={"answerable": levels(0.2, None)}),
    ]
    lines = levels_table("words alone", sets).splitlines()
    assert lines[2].startswith("| one | 40.0% | 90.0% |  | 20.0% | 0.0% | 2.0% | 10.0% |")
    assert lines[-1].startswith("| mean | 30.0% | 90.0% |  | 20.0% | 0.0% | 2.0% | 10.0% |")


def row(passages, source="synthetic", vectors=None):
    return Row(
        passages=passages,
        vectors=passages if vectors is None else vectors,
        vector_source=source,
        ingest_passages_per_second=100,
        vectors_per_second=50,
        p50_ms=1.0,
        p95_ms=2.0,
        p99_ms=3.0,
        parts_p50_ms={"lexical": 0.5},
        parts_p95_ms={"lexical": 0.9, "vector": 1.5},
        lookups_per_second={1: 10.0, 4: 20.0},
        bare_sql_p50_ms=0.5,
        ratio_to_bare_sql=2.0,
        trace_share=0.05,
        loop_held_ms=4.0,
        embed_p50_ms=5.0,
        embed_p95_ms=6.0,
        rss_mib=300,
    )


def test_speed_says_that_vectors_are_synthetic_and_what_the_model_adds():
    text = scale_tables([row(1000), row(20000)], Memory(without_model_mib=100, with_model_mib=320), 20_000)
    assert "| 20,000 | 20,000 |" in text
    assert "| vector | 0.0 / 1.5 | 0.0 / 1.5 |" in text
    assert "synthetic vectors, mixed from 2,048 real ones" in text
    assert "100 MiB before the first question, 320 MiB after it" in text


def test_speed_without_vectors_says_nothing_of_embedding():
    text = scale_tables([row(1000, "none", 0)], None, 20_000)
    assert "no vectors" in text
    assert "embedded in" not in text


def test_the_whole_report_holds_what_was_asked_for(tmp_path):
    settings = load_settings({}, home=str(tmp_path))
    bare = markdown(Results(isolation_us=(60.0, 200.0)), settings)
    assert "60 µs" in bare
    assert "nDCG" not in bare
    full = Results(
        quality=[quality(lexical=0.5)],
        relevance=LevelsReport(words=[], meaning=None),
        scale=[row(1000)],
        isolation_us=(60.0, 200.0),
    )
    text = markdown(full, settings)
    assert text.index("nDCG@10 by set") < text.index("relevanceLevel, words alone") < text.index("| passages |")


def test_only_whole_sets_are_taken_and_only_those_named(tmp_path):
    for name in ("b", "a", "half"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.jsonl").touch()
    for name in ("b", "a"):
        (tmp_path / name / "queries.jsonl").touch()
    assert [path.name for path in judged_sets(tmp_path)] == ["a", "b"]
    assert [path.name for path in judged_sets(tmp_path, "b,half")] == ["b"]
