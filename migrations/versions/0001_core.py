"""Tenants, contexts, sources, passages, the lexical index, and the isolation of tenants."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "tenant",
    "context",
    "source",
    "source_content",
    "section",
    "passage",
    "lexical_segment",
    "lexical_posting",
)


# Another database of the cluster may do the same at this moment: then its role, or its grant, is there.
# SET ROLE takes the option SET from Postgres 16 on, and a membership before. A superuser has both.
ROLE = """
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'strata_app') THEN
    BEGIN
      CREATE ROLE strata_app NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL;
    END;
  END IF;
  IF NOT pg_has_role(current_user, 'strata_app', CASE
    WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
  THEN
    BEGIN
      EXECUTE 'GRANT strata_app TO ' || quote_ident(current_user);
    EXCEPTION WHEN unique_violation OR internal_error THEN
      NULL;
    END;
  END IF;
END
$$
"""

SCHEMA_USAGE = """
DO $$
BEGIN
  IF NOT has_schema_privilege('strata_app', current_schema(), 'USAGE') THEN
    EXECUTE 'GRANT USAGE ON SCHEMA ' || quote_ident(current_schema()) || ' TO strata_app';
  END IF;
END
$$
"""


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    op.execute(ROLE)
    op.execute(SCHEMA_USAGE)
    op.execute("""
    CREATE FUNCTION strata_tenant() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(current_setting('strata.tenant_id', true), '')::uuid
    """)
    op.execute("""
    CREATE TABLE tenant (
      tenant_id uuid PRIMARY KEY,
      name text NOT NULL UNIQUE,
      created_at timestamptz NOT NULL DEFAULT now()
    )
    """)
    op.execute("""
    CREATE TABLE context (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      name text NOT NULL,
      description text NOT NULL DEFAULT '',
      graph_revision bigint NOT NULL DEFAULT 0,
      passages_revision bigint NOT NULL DEFAULT 0,
      hints_revision bigint NOT NULL DEFAULT 0,
      config_revision bigint NOT NULL DEFAULT 0,
      languages text[] NOT NULL DEFAULT '{}',
      created_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT context_name_key UNIQUE (tenant_id, name)
    )
    """)
    op.execute("ALTER TABLE context ADD PRIMARY KEY (tenant_id, context_id)")
    op.execute("CREATE SEQUENCE source_serial_seq")
    op.execute("""
    CREATE TABLE source (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      source_id uuid NOT NULL,
      serial bigint NOT NULL,
      revision bigint NOT NULL DEFAULT 1,
      path text NOT NULL COLLATE "C",
      origin text NOT NULL DEFAULT '',
      title text NOT NULL DEFAULT '',
      format text NOT NULL,
      media_type text,
      category text,
      language text,
      tags text[] NOT NULL DEFAULT '{}',
      source_key text,
      source_key_basis text,
      occurred_at timestamptz,
      metadata jsonb NOT NULL DEFAULT '{}',
      normalisation jsonb NOT NULL DEFAULT '{}',
      warnings text[] NOT NULL DEFAULT '{}',
      content_sha256 bytea NOT NULL,
      fingerprint bytea NOT NULL,
      original_bytes bigint NOT NULL,
      text_bytes bigint NOT NULL,
      passage_count bigint NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now(),
      updated_at timestamptz NOT NULL DEFAULT now(),
      CONSTRAINT source_path_key UNIQUE (tenant_id, context_id, path),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
    )
    """)
    op.execute("CREATE UNIQUE INDEX source_serial_idx ON source (tenant_id, context_id, serial)")
    # Partial, and the primary key last: on a table without statistics the planner breaks ties of cost
    # for the newest index that fits, and foreign key checks must not walk a context through another.
    op.execute(
        "CREATE INDEX source_category_idx ON source (tenant_id, context_id, category) WHERE category IS NOT NULL"
    )
    op.execute("ALTER TABLE source ADD PRIMARY KEY (tenant_id, context_id, source_id)")
    op.execute("""
    CREATE TABLE source_content (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      source_id uuid NOT NULL,
      content bytea NOT NULL,
      PRIMARY KEY (tenant_id, context_id, source_id),
      FOREIGN KEY (tenant_id, context_id, source_id) REFERENCES source ON DELETE CASCADE
    )
    """)
    op.execute("ALTER TABLE source_content ALTER content SET STORAGE EXTERNAL")
    op.execute("""
    CREATE TABLE section (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      source_id uuid NOT NULL,
      ordinal bigint NOT NULL,
      level bigint NOT NULL,
      heading text NOT NULL,
      anchor text,
      breadcrumb text[] NOT NULL DEFAULT '{}',
      start_byte bigint NOT NULL,
      end_byte bigint NOT NULL,
      PRIMARY KEY (tenant_id, context_id, source_id, ordinal),
      FOREIGN KEY (tenant_id, context_id, source_id) REFERENCES source ON DELETE CASCADE
    )
    """)
    op.execute("""
    CREATE TABLE passage (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      passage_id bigint NOT NULL,
      source_id uuid NOT NULL,
      section_ordinal bigint NOT NULL,
      kind text NOT NULL,
      start_byte bigint NOT NULL,
      end_byte bigint NOT NULL,
      sha256 bytea NOT NULL,
      page bigint,
      start_ms bigint,
      end_ms bigint,
      speaker text,
      FOREIGN KEY (tenant_id, context_id, source_id) REFERENCES source ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX passage_source_idx ON passage (source_id, context_id, tenant_id, section_ordinal)")
    op.execute("ALTER TABLE passage ADD PRIMARY KEY (tenant_id, context_id, passage_id)")
    op.execute("""
    CREATE TABLE lexical_segment (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      segment_id bigint GENERATED ALWAYS AS IDENTITY,
      version bigint NOT NULL DEFAULT 0,
      analyser bigint NOT NULL,
      passages bigint NOT NULL,
      total_length bigint NOT NULL,
      dead_count bigint NOT NULL DEFAULT 0,
      min_passage_id bigint NOT NULL,
      max_passage_id bigint NOT NULL,
      lengths bytea NOT NULL,
      passage_ids bytea NOT NULL,
      dead bytea,
      created_at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (tenant_id, context_id, segment_id),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
    )
    """)
    op.execute("""
    CREATE TABLE lexical_posting (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      segment_id bigint NOT NULL,
      term bigint NOT NULL,
      passages bytea NOT NULL,
      frequencies bytea NOT NULL,
      PRIMARY KEY (tenant_id, context_id, segment_id, term)
    )
    """)
    op.execute("""
    ALTER TABLE lexical_segment
      ALTER lengths SET STORAGE EXTERNAL, ALTER passage_ids SET STORAGE EXTERNAL, ALTER dead SET STORAGE EXTERNAL
    """)
    op.execute("""
    ALTER TABLE lexical_posting ALTER passages SET STORAGE EXTERNAL, ALTER frequencies SET STORAGE EXTERNAL
    """)
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY tenant_isolation ON {table} "
            "USING (tenant_id = (SELECT strata_tenant())) WITH CHECK (tenant_id = (SELECT strata_tenant()))"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO strata_app")
    op.execute("REVOKE INSERT, UPDATE, DELETE ON tenant FROM strata_app")
    op.execute("GRANT USAGE ON SEQUENCE source_serial_seq TO strata_app")
    op.execute("""
    DO $$
    BEGIN
      PERFORM set_config('strata.tenant_id', '00000000-0000-0000-0000-000000000001', true);
      INSERT INTO tenant (tenant_id, name) VALUES (strata_tenant(), 'default');
    END
    $$
    """)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE {table}")
    op.execute("DROP SEQUENCE source_serial_seq")
    op.execute("DROP FUNCTION strata_tenant()")
