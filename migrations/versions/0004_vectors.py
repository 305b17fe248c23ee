"""Embedding spaces, the vectors of passages, and durable work."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = ("embedding_space", "passage_vector", "work")


def upgrade() -> None:
    op.execute("""
    CREATE TABLE embedding_space (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      space_id bigint GENERATED ALWAYS AS IDENTITY,
      fingerprint bytea NOT NULL,
      description jsonb NOT NULL,
      dimension bigint NOT NULL,
      state text NOT NULL,
      vectors bigint NOT NULL DEFAULT 0,
      indexed_at timestamptz,
      removed bigint NOT NULL DEFAULT 0,
      created_at timestamptz NOT NULL DEFAULT now(),
      activated_at timestamptz,
      PRIMARY KEY (tenant_id, context_id, space_id),
      CONSTRAINT embedding_space_state_check CHECK (state IN ('building', 'active', 'retired')),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
    )
    """)
    op.execute("""
    CREATE UNIQUE INDEX embedding_space_active_key ON embedding_space (tenant_id, context_id) WHERE state = 'active'
    """)
    op.execute("""
    CREATE UNIQUE INDEX embedding_space_building_key ON embedding_space (tenant_id, context_id)
    WHERE state = 'building'
    """)
    op.execute("""
    CREATE TABLE passage_vector (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      space_id bigint NOT NULL,
      passage_id bigint NOT NULL,
      embedding halfvec NOT NULL,
      PRIMARY KEY (tenant_id, context_id, space_id, passage_id)
    )
    """)
    # Inline, not toasted: an exact scan of toasted vectors takes six times as long.
    op.execute("ALTER TABLE passage_vector ALTER embedding SET STORAGE PLAIN")
    # Serves the lookups: which of the passages found are cues, whose neighbours speak for them.
    op.execute("CREATE INDEX passage_cue_idx ON passage (tenant_id, context_id, passage_id) WHERE kind = 'cue'")
    op.execute("""
    CREATE TABLE work (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      work_id bigint GENERATED ALWAYS AS IDENTITY,
      kind text NOT NULL,
      payload jsonb NOT NULL,
      is_failed boolean NOT NULL DEFAULT false,
      attempts bigint NOT NULL DEFAULT 0,
      run_at timestamptz NOT NULL DEFAULT now(),
      worker text,
      error text,
      created_at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (tenant_id, context_id, work_id),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX work_due_idx ON work (tenant_id, kind, run_at, work_id) WHERE NOT is_failed")
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY tenant_isolation ON {table} "
            "USING (tenant_id = (SELECT strata_tenant())) WITH CHECK (tenant_id = (SELECT strata_tenant()))"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO strata_app")


def downgrade() -> None:
    op.execute("DROP INDEX passage_cue_idx")
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE {table}")
