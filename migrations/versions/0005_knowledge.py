"""The knowledge graph: concepts, labels, aliases, associations and who asserted them; groups and the change feed."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = (
    "context_usage",
    "context_change",
    "context_schema",
    "context_group",
    "context_group_context",
    "context_group_child",
    "concept",
    "label",
    "alias",
    "association",
    "attribution",
    "name_vector",
    "passage_question",
)

# Nobody's: it is there only while the statistics are taken.
NOBODY = "00000000-0000-0000-0000-0000000000ff"
COUNTED = ("concept", "label", "alias", "association", "attribution", "name_vector")


def upgrade() -> None:
    op.execute("""
    ALTER TABLE context
      ADD COLUMN is_pinned boolean NOT NULL DEFAULT false,
      ADD COLUMN dice_floor double precision,
      ADD COLUMN semantic_floor double precision,
      ADD COLUMN change_seq bigint NOT NULL DEFAULT 0
    """)
    op.execute("ALTER TABLE passage ADD COLUMN locator_kind text, ADD COLUMN locator_value text")
    op.execute("""
    CREATE TABLE context_usage (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      reads bigint NOT NULL DEFAULT 0,
      empty_reads bigint NOT NULL DEFAULT 0,
      writes bigint NOT NULL DEFAULT 0,
      last_read_at timestamptz,
      last_write_at timestamptz,
      PRIMARY KEY (tenant_id, context_id),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
    )
    """)
    op.execute("""
    CREATE TABLE context_change (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      seq bigint NOT NULL,
      kind text NOT NULL,
      payload jsonb NOT NULL DEFAULT '{}',
      created_at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (tenant_id, context_id, seq),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
    )
    """)
    op.execute("""
    CREATE TABLE context_schema (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      mode text NOT NULL,
      document jsonb NOT NULL DEFAULT '{}',
      PRIMARY KEY (tenant_id, context_id),
      CONSTRAINT context_schema_mode_check CHECK (mode IN ('off', 'warn', 'strict')),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
    )
    """)
    op.execute("""
    CREATE TABLE context_group (
      tenant_id uuid NOT NULL,
      group_id uuid NOT NULL,
      name text NOT NULL COLLATE "C",
      description text NOT NULL DEFAULT '',
      created_at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (tenant_id, group_id),
      CONSTRAINT context_group_name_key UNIQUE (tenant_id, name)
    )
    """)
    op.execute("""
    CREATE TABLE context_group_context (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      group_id uuid NOT NULL,
      PRIMARY KEY (tenant_id, context_id, group_id),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE,
      FOREIGN KEY (tenant_id, group_id) REFERENCES context_group ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX context_group_context_group_idx ON context_group_context (tenant_id, group_id)")
    op.execute("""
    CREATE TABLE context_group_child (
      tenant_id uuid NOT NULL,
      group_id uuid NOT NULL,
      child_id uuid NOT NULL,
      PRIMARY KEY (tenant_id, group_id, child_id),
      CONSTRAINT context_group_child_self_check CHECK (group_id <> child_id),
      FOREIGN KEY (tenant_id, group_id) REFERENCES context_group ON DELETE CASCADE,
      FOREIGN KEY (tenant_id, child_id) REFERENCES context_group ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX context_group_child_child_idx ON context_group_child (tenant_id, child_id)")
    for kind in ("concept", "label"):
        op.execute(f"""
        CREATE TABLE {kind} (
          tenant_id uuid NOT NULL,
          context_id uuid NOT NULL,
          {kind}_id bigint GENERATED ALWAYS AS IDENTITY,
          name text NOT NULL COLLATE "C",
          key text NOT NULL COLLATE "C",
          CONSTRAINT {kind}_name_key UNIQUE (tenant_id, context_id, name),
          FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
        )
        """)
        op.execute(f"CREATE INDEX {kind}_key_idx ON {kind} (tenant_id, context_id, key)")
        # Last, as on source: without statistics the checks of foreign keys take the newest index that fits.
        op.execute(f"ALTER TABLE {kind} ADD PRIMARY KEY (tenant_id, context_id, {kind}_id)")
    op.execute("""
    CREATE TABLE alias (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      namespace text NOT NULL,
      alias text NOT NULL COLLATE "C",
      concept_id bigint,
      label_id bigint,
      PRIMARY KEY (tenant_id, context_id, namespace, alias),
      CONSTRAINT alias_target_check CHECK (CASE namespace
        WHEN 'concept' THEN concept_id IS NOT NULL AND label_id IS NULL
        WHEN 'label' THEN label_id IS NOT NULL AND concept_id IS NULL
        ELSE false END),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE,
      FOREIGN KEY (tenant_id, context_id, concept_id) REFERENCES concept,
      FOREIGN KEY (tenant_id, context_id, label_id) REFERENCES label
    )
    """)
    op.execute("CREATE INDEX alias_concept_idx ON alias (tenant_id, context_id, concept_id)")
    op.execute("CREATE INDEX alias_label_idx ON alias (tenant_id, context_id, label_id)")
    op.execute("""
    CREATE TABLE association (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      association_id bigint GENERATED ALWAYS AS IDENTITY,
      subject_id bigint NOT NULL,
      label_id bigint NOT NULL,
      object_id bigint NOT NULL,
      weight double precision NOT NULL,
      count bigint NOT NULL,
      CONSTRAINT association_triple_key UNIQUE (tenant_id, context_id, subject_id, label_id, object_id),
      CONSTRAINT association_self_check CHECK (subject_id <> object_id),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE,
      FOREIGN KEY (tenant_id, context_id, subject_id) REFERENCES concept,
      FOREIGN KEY (tenant_id, context_id, label_id) REFERENCES label,
      FOREIGN KEY (tenant_id, context_id, object_id) REFERENCES concept
    )
    """)
    op.execute("CREATE INDEX association_label_idx ON association (tenant_id, context_id, label_id)")
    op.execute("CREATE INDEX association_object_idx ON association (tenant_id, context_id, object_id)")
    op.execute("ALTER TABLE association ADD PRIMARY KEY (tenant_id, context_id, association_id)")
    op.execute("""
    CREATE TABLE attribution (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      attribution_id bigint GENERATED ALWAYS AS IDENTITY,
      association_id bigint NOT NULL,
      source text NOT NULL COLLATE "C",
      valid_from bigint,
      valid_until bigint,
      weight double precision NOT NULL,
      count bigint NOT NULL,
      paragraph bigint,
      PRIMARY KEY (tenant_id, context_id, attribution_id),
      CONSTRAINT attribution_key UNIQUE NULLS NOT DISTINCT
        (tenant_id, context_id, association_id, source, valid_from, valid_until),
      CONSTRAINT attribution_interval_check CHECK (valid_from < valid_until),
      FOREIGN KEY (tenant_id, context_id, association_id) REFERENCES association ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX attribution_source_idx ON attribution (tenant_id, context_id, source)")
    op.execute("""
    CREATE TABLE name_vector (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      vector_id bigint GENERATED ALWAYS AS IDENTITY,
      concept_id bigint,
      label_id bigint,
      space bytea NOT NULL,
      gloss_sha256 bytea NOT NULL,
      embedding halfvec NOT NULL,
      PRIMARY KEY (tenant_id, context_id, vector_id),
      CONSTRAINT name_vector_name_key UNIQUE NULLS NOT DISTINCT (tenant_id, context_id, concept_id, label_id),
      CONSTRAINT name_vector_name_check CHECK (num_nonnulls(concept_id, label_id) = 1),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE,
      FOREIGN KEY (tenant_id, context_id, concept_id) REFERENCES concept ON DELETE CASCADE,
      FOREIGN KEY (tenant_id, context_id, label_id) REFERENCES label ON DELETE CASCADE
    )
    """)
    op.execute("CREATE INDEX name_vector_label_idx ON name_vector (tenant_id, context_id, label_id)")
    # Inline, as the vectors of passages.
    op.execute("ALTER TABLE name_vector ALTER embedding SET STORAGE PLAIN")
    op.execute("""
    CREATE TABLE passage_question (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      source_id uuid NOT NULL,
      paragraph bigint NOT NULL,
      ordinal bigint NOT NULL,
      question text NOT NULL,
      PRIMARY KEY (tenant_id, context_id, source_id, paragraph, ordinal),
      FOREIGN KEY (tenant_id, context_id, source_id) REFERENCES source ON DELETE CASCADE
    )
    """)
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY tenant_isolation ON {table} "
            "USING (tenant_id = (SELECT strata_tenant())) WITH CHECK (tenant_id = (SELECT strata_tenant()))"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO strata_app")
    prime_statistics()


def prime_statistics() -> None:
    """Give the planner statistics of tables that are still empty.

    Without any it takes the index that finds a context to be as good as the one that finds a row, and every
    check of a foreign key walks the whole context: a first import of some thousand facts takes minutes. A
    context may always be the only one; ``n_distinct`` keeps later statistics at that.
    """
    for table in COUNTED:
        op.execute(
            f"ALTER TABLE {table} ALTER COLUMN tenant_id SET (n_distinct = 1), "
            "ALTER COLUMN context_id SET (n_distinct = 1)"
        )
    op.execute(f"SELECT set_config('strata.tenant_id', '{NOBODY}', true)")
    op.execute(f"INSERT INTO tenant (tenant_id, name) VALUES ('{NOBODY}', 'statistics')")
    op.execute(f"INSERT INTO context (tenant_id, context_id, name) VALUES ('{NOBODY}', '{NOBODY}', 'statistics')")
    for table in ("concept", "label"):
        op.execute(
            f"INSERT INTO {table} (tenant_id, context_id, name, key) "
            f"SELECT '{NOBODY}', '{NOBODY}', n, n FROM generate_series(1, 2000) AS n"
        )
    # Before rows that refer to them: these checks need the statistics too.
    op.execute("ANALYZE concept, label")
    for table in ("concept", "label"):
        op.execute(
            f"INSERT INTO alias (tenant_id, context_id, namespace, alias, {table}_id) "
            f"SELECT tenant_id, context_id, '{table}', 'a' || name, {table}_id "
            f"FROM {table} WHERE tenant_id = '{NOBODY}'"
        )
        op.execute(
            f"INSERT INTO name_vector (tenant_id, context_id, {table}_id, space, gloss_sha256, embedding) "
            f"SELECT tenant_id, context_id, {table}_id, '', '', '[1]' FROM {table} WHERE tenant_id = '{NOBODY}'"
        )
    op.execute(f"""
    INSERT INTO association (tenant_id, context_id, subject_id, label_id, object_id, weight, count)
    SELECT '{NOBODY}', '{NOBODY}', s.concept_id, l.label_id, o.concept_id, 1, 1
    FROM (SELECT concept_id, row_number() OVER (ORDER BY concept_id) AS n FROM concept
          WHERE tenant_id = '{NOBODY}') s
    JOIN (SELECT label_id, row_number() OVER (ORDER BY label_id) AS n FROM label
          WHERE tenant_id = '{NOBODY}') l USING (n)
    JOIN (SELECT concept_id, row_number() OVER (ORDER BY concept_id DESC) AS n FROM concept
          WHERE tenant_id = '{NOBODY}') o USING (n)
    """)
    op.execute("ANALYZE association")
    op.execute(f"""
    INSERT INTO attribution (tenant_id, context_id, association_id, source, weight, count)
    SELECT tenant_id, context_id, association_id, 's' || association_id, 1, 1
    FROM association WHERE tenant_id = '{NOBODY}'
    """)
    op.execute(f"ANALYZE {', '.join(COUNTED)}")
    for table in ("attribution", "association", "alias", "name_vector", "concept", "label", "context", "tenant"):
        op.execute(f"DELETE FROM {table} WHERE tenant_id = '{NOBODY}'")


def downgrade() -> None:
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE {table}")
    op.execute("ALTER TABLE passage DROP COLUMN locator_kind, DROP COLUMN locator_value")
    op.execute("""
    ALTER TABLE context DROP COLUMN is_pinned, DROP COLUMN dice_floor, DROP COLUMN semantic_floor,
      DROP COLUMN change_seq
    """)
