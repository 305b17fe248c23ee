"""What the tests of evaluation share: the judged sets of the tests, the service, and sets of their own making."""

from __future__ import annotations

import json
from pathlib import Path

from strata.evaluate.service import EvaluateService

JUDGED = Path(__file__).parent / "data" / "judged"


def evaluation(services):
    return EvaluateService(
        services.contexts, services.sources, services.lookup, services.embeddings, services.embedders
    )


def write_set(folder, corpus, queries, judged):
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), encoding="utf-8")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    rows = [f"{query}\t{document}\t1" for query, document in judged]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]), encoding="utf-8")
    return folder
