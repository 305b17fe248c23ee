"""Linked documents: the relations that sources declare, the links in them, and their earlier revisions."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = ("document_relation", "source_revision")


# The source that a relation leads to, seen from the document at ``path``: resolved when it is read. A path means
# itself, or the Markdown file or folder page of that name; of the sources that a name means, one in the same
# folder comes first, then the one with the shortest path. A document is never its own target.
TARGET = """
CREATE FUNCTION relation_target(tenant uuid, context uuid, form text, target text, path text)
RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE AS $$
  SELECT CASE relation_target.form
    WHEN 'name' THEN (
      SELECT s.source_id FROM source s
      WHERE s.tenant_id = tenant AND s.context_id = context AND s.link_name <> ''
        AND s.link_name = relation_target.target AND s.path <> relation_target.path
      ORDER BY regexp_replace(s.path, '[^/]*$', '') <> regexp_replace(relation_target.path, '[^/]*$', ''),
        length(s.path), s.path COLLATE "C"
      LIMIT 1)
    ELSE (
      SELECT s.source_id FROM source s
      WHERE s.tenant_id = tenant AND s.context_id = context AND s.path = ANY (
        ARRAY[relation_target.target, relation_target.target || '.md', relation_target.target || '/index.md',
          relation_target.target || '/README.md'])
        AND s.path <> relation_target.path
      ORDER BY length(s.path), s.path COLLATE "C"
      LIMIT 1)
    END
$$
"""

# By what targets relations may lead to the source at ``path``; each is still to be resolved.
NAMES = """
CREATE FUNCTION relation_names(path text)
RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ARRAY[path, regexp_replace(path, '\\.md$', ''), regexp_replace(path, '/(index|README)\\.md$', ''),
    lower(regexp_replace(regexp_replace(path, '^.*/', ''), '(?<=.)\\.[^.]*$', '') COLLATE "default")]
$$
"""


def upgrade() -> None:
    # What a wiki link names: the last part of the path without its extension, in lower case.
    op.execute("""ALTER TABLE source ADD COLUMN link_name text NOT NULL DEFAULT '' COLLATE "C" """)
    # No tenant is set here: an owner under row-level security would fill in nothing.
    op.execute("ALTER TABLE source NO FORCE ROW LEVEL SECURITY")
    op.execute(r"""
    UPDATE source SET link_name =
      lower(regexp_replace(regexp_replace(path, '^.*/', ''), '(?<=.)\.[^.]*$', '') COLLATE "default")
    """)
    op.execute("ALTER TABLE source FORCE ROW LEVEL SECURITY")
    # Partial, so that no foreign key check takes it (see source_category_idx).
    op.execute("CREATE INDEX source_link_name_idx ON source (tenant_id, context_id, link_name) WHERE link_name <> ''")
    op.execute("""
    CREATE TABLE document_relation (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      source_id uuid NOT NULL,
      ordinal bigint NOT NULL,
      predicate text NOT NULL COLLATE "C",
      form text NOT NULL,
      target text NOT NULL COLLATE "C",
      written text NOT NULL,
      anchor text,
      label text NOT NULL DEFAULT '',
      section_ordinal bigint NOT NULL DEFAULT 0,
      count bigint NOT NULL DEFAULT 1,
      CONSTRAINT document_relation_form_check CHECK (form IN ('path', 'name', 'url')),
      FOREIGN KEY (tenant_id, context_id, source_id) REFERENCES source ON DELETE CASCADE
    )
    """)
    op.execute(
        "CREATE INDEX document_relation_target_idx ON document_relation (tenant_id, context_id, target, predicate)"
    )
    # Last, as on source: without statistics the checks of foreign keys take the newest index that fits.
    op.execute("ALTER TABLE document_relation ADD PRIMARY KEY (tenant_id, context_id, source_id, ordinal)")
    op.execute("""
    CREATE TABLE source_revision (
      tenant_id uuid NOT NULL,
      context_id uuid NOT NULL,
      path text NOT NULL COLLATE "C",
      revision bigint NOT NULL,
      source_id uuid NOT NULL,
      origin text NOT NULL,
      title text NOT NULL,
      format text NOT NULL,
      media_type text,
      category text,
      language text,
      tags text[] NOT NULL DEFAULT '{}',
      source_key text,
      occurred_at timestamptz,
      metadata jsonb NOT NULL DEFAULT '{}',
      content_sha256 bytea NOT NULL,
      original_bytes bigint NOT NULL,
      passage_count bigint NOT NULL,
      sections jsonb NOT NULL DEFAULT '[]',
      content bytea NOT NULL,
      stored_at timestamptz NOT NULL,
      retired_at timestamptz NOT NULL DEFAULT now(),
      is_archived boolean NOT NULL DEFAULT false,
      PRIMARY KEY (tenant_id, context_id, path, revision),
      FOREIGN KEY (tenant_id, context_id) REFERENCES context ON DELETE CASCADE
    )
    """)
    # A slice of a text reads only itself, as on source_content.
    op.execute("ALTER TABLE source_revision ALTER content SET STORAGE EXTERNAL")
    op.execute(
        "CREATE INDEX source_revision_archived_idx ON source_revision (tenant_id, context_id, path) WHERE is_archived"
    )
    op.execute(
        "CREATE INDEX source_revision_archived_id_idx ON source_revision (tenant_id, context_id, source_id) "
        "WHERE is_archived"
    )
    op.execute(TARGET)
    op.execute(NAMES)
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY tenant_isolation ON {table} "
            "USING (tenant_id = (SELECT strata_tenant())) WITH CHECK (tenant_id = (SELECT strata_tenant()))"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO strata_app")


def downgrade() -> None:
    op.execute("DROP FUNCTION relation_target, relation_names")
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE {table}")
    op.execute("ALTER TABLE source DROP COLUMN link_name")
