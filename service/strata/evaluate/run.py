"""Run an eval against a backend, and hold it to its thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from strata.errors import INVALID_REQUEST, SERVER_UNAVAILABLE, StrataError
from strata.evaluate import artifact
from strata.evaluate.backend import MAX_SEARCH_LIMIT, Backend, Corpus
from strata.evaluate.case_lanes import CaseLanes, Mode, Observed
from strata.evaluate.case_metrics import CATALOGUE, Figure
from strata.evaluate.case_scores import Values, figures_of, outcome_of, values_of
from strata.evaluate.cases import Case, Eval
from strata.evaluate.thresholds import Thresholds, Verdict, judge

Progress = Callable[[str, int, int], None]

_SHOWN = 5

MATCHING = {
    "sources": "A hit meets an expected source when it is of that source and, where it states paragraphs, one of them.",
    "package": (
        "The hits of a package are its passages and the paragraphs whose text it holds as citations of its"
        " associations, in its order, each once; cut at k. A passage of which it holds only sentences is none."
    ),
    "names": "Lower case, NFKC, katakana as hiragana; nothing else is folded.",
    "tier": (
        "Of the five best candidates of a cue only the strongest kind of match counts: the same spelling or an alias,"
        " then containment, then likeness, then meaning."
    ),
    "associations": "Asked for only where subject, label and object each resolve to exactly one such candidate.",
    "quotes": "A quote must stand in its paragraph, both written as names are.",
    "budget": (
        "Both ways count an item as its compact JSON without its own sizes, and a citation once; what does not fit is"
        " skipped and the next one tried."
    ),
}


async def evaluate(
    backend: Backend,
    given: Eval,
    mode: Mode,
    *,
    context: str | None = None,
    thresholds: Thresholds | None = None,
    progress: Progress | None = None,
) -> artifact.Evaluation:
    """Ask every case and return the artifact; a case's own target wins over ``context``, and that over the eval's.

    Raises ``invalid_request`` for a case without a context and for expected sources that its context lacks,
    ``context_not_found``, and whatever else stops the run; errors of single searches are part of the result, but
    ``server_unavailable`` where every one failed.
    """
    contexts = _contexts(given, context)
    before = {name: await backend.corpus(name) for name in sorted(set(contexts))}
    await _check_sources(backend, given.cases, contexts)
    lanes = CaseLanes(backend, mode)
    observed: list[Observed] = []
    for case, name in zip(given.cases, contexts, strict=True):
        observed.append(await lanes.observe(case, name, before[name].name))
        if progress:
            progress("evaluate", len(observed), len(given.cases))
    _require_answers(observed)
    after = {name: await backend.corpus(name) for name in before}
    values = [values_of(seen) for seen in observed]
    figures = figures_of(observed, values, lanes.timings, mode)
    corpus = _corpus_state(before, after)
    return artifact.Evaluation(
        inputs=_inputs(given, mode, list(before), thresholds),
        matching=MATCHING,
        corpus=corpus,
        definitions={key: metric.definition for key, metric in CATALOGUE.items()},
        warnings=_warnings(observed, mode, corpus),
        cases=[outcome_of(seen, each, mode) for seen, each in zip(observed, values, strict=True)],
        metrics=artifact.nested(figures),
        gate=_gate(thresholds, figures, observed, values, corpus),
    )


def _require_answers(observed: Sequence[Observed]) -> None:
    if all(seen.passages.places is None for seen in observed):
        code = observed[0].passages.error
        raise StrataError(SERVER_UNAVAILABLE, f"Every case was answered with an error, the first one with {code}.")


def _gate(
    thresholds: Thresholds | None,
    figures: Mapping[str, Figure],
    observed: Sequence[Observed],
    values: Sequence[Values],
    corpus: artifact.CorpusState,
) -> Verdict | None:
    if thresholds is None:
        return None
    cases = [(seen.case.case_id, each) for seen, each in zip(observed, values, strict=True)]
    return judge(thresholds, figures, cases, is_stable=corpus.stable)


def _contexts(given: Eval, context: str | None) -> list[str]:
    """Return the context of each case."""
    fallback = context or given.target
    chosen = [case.target.reference if case.target else fallback for case in given.cases]
    named = [name for name in chosen if name is not None]
    if len(named) < len(chosen):
        raise StrataError(
            INVALID_REQUEST,
            "The eval names no context for some of its cases.",
            pointer="--context",
            remedy="Give --context, a default_target in the header, or a target in each case.",
        )
    return named


async def _check_sources(backend: Backend, cases: Sequence[Case], contexts: Sequence[str]) -> None:
    expected: dict[str, dict[str, str]] = {}
    for case, context in zip(cases, contexts, strict=True):
        for wanted in case.expected_sources:
            expected.setdefault(context, {}).setdefault(wanted.source, case.case_id)
    for context, sources in sorted(expected.items()):
        unknown = await backend.unknown_sources(context, list(sources))
        if unknown:
            shown = ", ".join(f"{source!r} (case {sources[source]})" for source in unknown[:_SHOWN])
            rest = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
            raise StrataError(
                INVALID_REQUEST,
                f"The context {context!r} lacks expected sources: {shown}{rest}.",
                pointer="--eval",
                remedy="Ingest or import the sources first, or correct the eval.",
            )


def _corpus_state(before: Mapping[str, Corpus], after: Mapping[str, Corpus]) -> artifact.CorpusState:
    return artifact.CorpusState(
        revision_before={name: corpus.revision for name, corpus in before.items()},
        revision_after={name: corpus.revision for name, corpus in after.items()},
        stable=all(before[name].revision == after[name].revision for name in before),
        embeddings={name: corpus.embeddings for name, corpus in after.items()},
    )


def _inputs(given: Eval, mode: Mode, contexts: list[str], thresholds: Thresholds | None) -> artifact.Inputs:
    return artifact.Inputs(
        eval=artifact.EvalInput(name=given.name, sha256=given.digest, cases=len(given.cases)),
        contexts=contexts,
        mode="assembly" if mode.is_assembly else "search",
        limit=mode.limit,
        budget=mode.budget,
        rerank=mode.rerank,
        thresholds=thresholds.digest if thresholds else None,
        assembly_options=dict(mode.options),
    )


def _warnings(observed: Sequence[Observed], mode: Mode, corpus: artifact.CorpusState) -> list[str]:
    failed = sum(seen.passages.places is None for seen in observed)
    deep = sum(seen.limit > MAX_SEARCH_LIMIT for seen in observed) if mode.is_assembly else 0
    unasked = sum(seen.passages.reranked is False for seen in observed) if mode.rerank is not None else 0
    found = [
        (not corpus.stable, "The corpus changed during the run: its cases were not asked of one state."),
        (not any(seen.case.wanted for seen in observed), "No case expects a source: recall measures nothing."),
        (failed, f"{failed} of {len(observed)} cases have no passages: they were answered with an error."),
        (deep, f"{deep} cases have a limit above {MAX_SEARCH_LIMIT}, the most that a package takes from passages."),
        (unasked, f"{unasked} of {len(observed)} cases were not put in order by the reranker."),
    ]
    return [words for applies, words in found if applies]
