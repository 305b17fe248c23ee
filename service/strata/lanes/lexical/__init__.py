"""The lexical lane: true BM25 over immutable posting segments kept in Postgres."""
