"""Hint entries (L0) and the keys by which a question finds them."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = ("hint_entry", "hint_key")


def upgrade() -> None:
    op.execute("""
    CREATE TABLE hint_entry (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      hint_id uuid NOT NULL,
      origin text NOT NULL,
      source_id uuid,
      title text NOT NULL,
      aliases text[] NOT NULL DEFAULT '{}',
      keywords text[] NOT NULL DEFAULT '{}',
      category text,
      breadcrumb text[] NOT NULL DEFAULT '{}',
      summary text,
      targets text[] NOT NULL DEFAULT '{}',
      priority bigint NOT NULL DEFAULT 0,
      valid_from timestamptz,
      valid_until timestamptz,
      metadata jsonb NOT NULL DEFAULT '{}',
      created_at timestamptz NOT NULL DEFAULT now(),
      updated_at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (tenant_id, context_id, hint_id),
      CONSTRAINT hint_entry_origin_check CHECK (origin IN ('curated', 'frontmatter', 'derived')),
      CONSTRAINT hint_entry_owner_check CHECK ((origin = 'curated') = (source_id IS NULL)),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE,
      FOREIGN KEY (tenant_id, context_id, source_id) REFERENCES source ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX hint_entry_source_idx ON hint_entry (source_id, tenant_id, context_id)")
    op.execute("""
    CREATE INDEX hint_entry_named_idx ON hint_entry (tenant_id, context_id, origin, hint_id)
    WHERE origin <> 'derived'
    """)
    op.execute("""
    CREATE TABLE hint_key (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      hint_id uuid NOT NULL,
      ordinal bigint NOT NULL,
      kind text NOT NULL,
      norm text COLLATE "C" NOT NULL,
      rank bigint NOT NULL,
      CONSTRAINT hint_key_kind_check CHECK (kind IN ('name', 'keyword')),
      FOREIGN KEY (tenant_id, context_id, hint_id) REFERENCES hint_entry ON DELETE CASCADE
    )
    """)
    # Before a table is first analysed the planner takes the newest of indexes that look equally good.
    # A check of a foreign key must get the primary key, so that stands last.
    op.execute("CREATE INDEX hint_key_probe_idx ON hint_key (tenant_id, context_id, kind, norm, rank, hint_id)")
    op.execute("ALTER TABLE hint_key ADD PRIMARY KEY (tenant_id, context_id, hint_id, ordinal)")
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY tenant_isolation ON {table} "
            "USING (tenant_id = (SELECT strata_tenant())) WITH CHECK (tenant_id = (SELECT strata_tenant()))"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO strata_app")


def downgrade() -> None:
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE {table}")
