"""L0: curated and derived hint entries, and how a question matches them."""
