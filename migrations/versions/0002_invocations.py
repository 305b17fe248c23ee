"""The trace: tool_invocation by weekly partitions, and the views that read it."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

WEEKS_AHEAD = 8

TABLE = """
CREATE TABLE tool_invocation (
  tenant_id uuid NOT NULL,
  context_id uuid,
  id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  tool_name text NOT NULL,
  surface text NOT NULL,
  session_id text,
  agent_id text,
  request_id text,
  trace_id char(32),
  span_id char(16),
  arguments jsonb NOT NULL DEFAULT '{}',
  status text NOT NULL,
  found boolean,
  relevance_level text,
  completeness_hint text,
  evidence_count bigint NOT NULL DEFAULT 0,
  duration_ms double precision NOT NULL,
  error_type text,
  error_message text,
  retrieval_details jsonb,
  PRIMARY KEY (tenant_id, id, created_at),
  CONSTRAINT tool_invocation_surface_check CHECK (surface IN ('REST', 'MCP', 'CLI')),
  CONSTRAINT tool_invocation_status_check
    CHECK (status IN ('SUCCESS', 'NOT_FOUND', 'DEGRADED', 'ERROR', 'CANCELLED')),
  CONSTRAINT tool_invocation_relevance_check CHECK (relevance_level IN ('HIGH', 'MEDIUM', 'LOW', 'NONE')),
  CONSTRAINT tool_invocation_completeness_check CHECK (
    completeness_hint IN ('COMPLETE', 'PARTIAL', 'HINT_ONLY', 'FALLBACK', 'DEGRADED', 'EMPTY')),
  CONSTRAINT tool_invocation_trace_check CHECK (trace_id ~ '^[0-9a-f]{32}$' AND span_id ~ '^[0-9a-f]{16}$'),
  CONSTRAINT tool_invocation_numbers_check CHECK (evidence_count >= 0 AND duration_ms >= 0),
  CONSTRAINT tool_invocation_details_check
    CHECK (jsonb_typeof(arguments) = 'object' AND jsonb_typeof(retrieval_details) = 'object')
) PARTITION BY RANGE (created_at)
"""

INDEXES = (
    "CREATE INDEX tool_invocation_created_idx ON tool_invocation (tenant_id, created_at, id)",
    "CREATE INDEX tool_invocation_context_idx ON tool_invocation (tenant_id, context_id, created_at)",
    """
    CREATE INDEX tool_invocation_status_idx ON tool_invocation (tenant_id, status, created_at)
      WHERE status <> 'SUCCESS'
    """,
    "CREATE INDEX tool_invocation_trace_idx ON tool_invocation (tenant_id, trace_id) WHERE trace_id IS NOT NULL",
    """
    CREATE INDEX tool_invocation_session_idx ON tool_invocation (tenant_id, session_id, created_at)
      WHERE session_id IS NOT NULL
    """,
    "CREATE INDEX tool_invocation_request_idx ON tool_invocation (tenant_id, request_id) WHERE request_id IS NOT NULL",
)

# lz4 packs a large retrieval_details faster than pglz; a server built without it keeps pglz.
COMPRESSION = """
DO $$
BEGIN
  ALTER TABLE tool_invocation ALTER retrieval_details SET COMPRESSION lz4, ALTER arguments SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
  NULL;
END
$$
"""

# A partition is made beside the table and attached: inserts go on meanwhile. Rows that the
# default partition caught are moved; row security is off on it only inside this transaction,
# since its owner need not be a superuser.
PARTITIONS = """
CREATE FUNCTION strata_invocation_partitions(weeks_ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET lock_timeout = '3s'
SET timezone = 'UTC'
AS $function$
DECLARE
  this_week timestamptz := date_trunc('week', now(), 'UTC');
  lower_bound timestamptz;
  upper_bound timestamptz;
  partition_name text;
  bounds text;
  inside text;
  attach text;
  made integer := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(6004514643731611650); -- beside that of migrations
  FOR week IN 0 .. least(greatest(weeks_ahead, 0), 53) LOOP
    lower_bound := this_week + make_interval(days => 7 * week);
    upper_bound := lower_bound + interval '7 days';
    partition_name := 'tool_invocation_p' || to_char(lower_bound, 'YYYYMMDD');
    CONTINUE WHEN to_regclass(partition_name) IS NOT NULL;
    bounds := 'FROM (' || quote_literal(lower_bound) || ') TO (' || quote_literal(upper_bound) || ')';
    inside := 'created_at >= ' || quote_literal(lower_bound) || ' AND created_at < ' || quote_literal(upper_bound);
    EXECUTE 'CREATE TABLE ' || partition_name || ' (LIKE tool_invocation INCLUDING ALL)';
    EXECUTE 'ALTER TABLE ' || partition_name || ' ADD CONSTRAINT week CHECK (' || inside || ')';
    attach := 'ALTER TABLE tool_invocation ATTACH PARTITION ' || partition_name || ' FOR VALUES ' || bounds;
    BEGIN
      EXECUTE attach;
    EXCEPTION WHEN check_violation THEN
      ALTER TABLE tool_invocation_p2000_default NO FORCE ROW LEVEL SECURITY;
      EXECUTE 'WITH moved AS (DELETE FROM tool_invocation_p2000_default WHERE ' || inside
        || ' RETURNING *) INSERT INTO ' || partition_name || ' SELECT * FROM moved';
      ALTER TABLE tool_invocation_p2000_default FORCE ROW LEVEL SECURITY;
      EXECUTE attach;
    END;
    EXECUTE 'ALTER TABLE ' || partition_name || ' DROP CONSTRAINT week';
    EXECUTE 'ALTER TABLE ' || partition_name || ' ENABLE ROW LEVEL SECURITY';
    EXECUTE 'ALTER TABLE ' || partition_name || ' FORCE ROW LEVEL SECURITY';
    EXECUTE 'REVOKE ALL ON ' || partition_name || ' FROM PUBLIC, strata_app';
    made := made + 1;
  END LOOP;
  RETURN made;
END
$function$
"""

# The schema that the migration runs in is pinned; temporary objects come last.
PINNED = """
DO $$
BEGIN
  EXECUTE 'ALTER FUNCTION strata_invocation_partitions(integer) SET search_path = '
    || quote_ident(current_schema()) || ', pg_temp';
END
$$
"""

EVIDENCE = """
CREATE VIEW tool_invocation_evidence WITH (security_invoker = true) AS
SELECT i.tenant_id, i.context_id, i.id AS invocation_id, i.created_at, i.tool_name, i.surface,
       i.session_id, i.agent_id, i.arguments ->> 'query' AS query,
       (b ->> 'rank')::integer AS rank,
       b ->> 'sourceKey' AS source_key,
       b ->> 'sourceKeyBasis' AS source_key_basis,
       coalesce(b ->> 'source', substring(b ->> 'sourceKey' FROM '^path:([^#]+)')) AS source,
       b ->> 'passage' AS passage,
       ARRAY(SELECT jsonb_array_elements_text(b -> 'layers')) AS layers,
       b ->> 'title' AS title,
       ARRAY(SELECT jsonb_array_elements_text(b -> 'breadcrumb')) AS breadcrumb,
       (b ->> 'score')::double precision AS score,
       b -> 'laneRanks' AS lane_ranks,
       ARRAY(SELECT jsonb_array_elements_text(b -> 'hitReasons')) AS hit_reasons,
       (b ->> 'contentChars')::bigint AS content_chars,
       b ->> 'contentSha256' AS content_sha256
FROM tool_invocation i, LATERAL jsonb_path_query(i.retrieval_details, '$.evidenceBlocks[*]') AS b
"""

LANES = """
CREATE VIEW tool_invocation_lanes WITH (security_invoker = true) AS
SELECT i.tenant_id, i.context_id, i.id AS invocation_id, i.created_at, i.tool_name, i.surface, i.status,
       l.key AS lane,
       (l.value ->> 'ran')::boolean AS ran,
       l.value ->> 'reason' AS reason,
       (l.value ->> 'candidates')::bigint AS candidates,
       (l.value ->> 'durationMs')::double precision AS duration_ms
FROM tool_invocation i, LATERAL jsonb_each(
  CASE WHEN jsonb_typeof(i.retrieval_details -> 'lanes') = 'object' THEN i.retrieval_details -> 'lanes' ELSE '{}' END
) AS l
"""

OMITTED = """
CREATE VIEW tool_invocation_omitted WITH (security_invoker = true) AS
SELECT i.tenant_id, i.context_id, i.id AS invocation_id, i.created_at, i.tool_name,
       i.arguments ->> 'query' AS query,
       o.position,
       o.value ->> 'sourceKey' AS source_key,
       coalesce(o.value ->> 'source', substring(o.value ->> 'sourceKey' FROM '^path:([^#]+)')) AS source,
       o.value ->> 'passage' AS passage,
       o.value ->> 'reason' AS reason,
       CASE o.value ->> 'reason'
         WHEN 'DUPLICATE_SOURCE' THEN 'DEDUPLICATION'
         WHEN 'NEAR_DUPLICATE' THEN 'DEDUPLICATION'
         WHEN 'BELOW_FLOOR' THEN 'FLOOR'
         WHEN 'BUDGET_EXCEEDED' THEN 'BUDGET'
         WHEN 'BELOW_TOP_K' THEN 'TOP_K'
         WHEN 'GONE' THEN 'CONFIRM'
         ELSE 'FUSION'
       END AS stage,
       o.value ->> 'duplicateOf' AS duplicate_of,
       o.value -> 'laneRanks' AS lane_ranks
FROM tool_invocation i,
  LATERAL jsonb_path_query(i.retrieval_details, '$.omitted[*]') WITH ORDINALITY AS o (value, position)
"""

CANDIDATES = """
CREATE VIEW tool_invocation_candidates WITH (security_invoker = true) AS
SELECT tenant_id, context_id, invocation_id, created_at, query, source_key, source, passage,
       'SELECTED' AS stage, NULL::text AS reason, rank AS position, NULL::text AS duplicate_of, lane_ranks
FROM tool_invocation_evidence
UNION ALL
SELECT tenant_id, context_id, invocation_id, created_at, query, source_key, source, passage,
       stage, reason, position, duplicate_of, lane_ranks
FROM tool_invocation_omitted
"""

MISSES = """
CREATE VIEW lookup_misses WITH (security_invoker = true) AS
SELECT tenant_id, context_id, id AS invocation_id, created_at, surface, session_id, agent_id,
       arguments ->> 'query' AS query,
       status, relevance_level, completeness_hint,
       retrieval_details ->> 'emptyReason' AS empty_reason,
       retrieval_details ->> 'fallback' AS fallback,
       (retrieval_details -> 'postprocess' ->> 'raw')::bigint AS candidates,
       retrieval_details -> 'postprocess' -> 'omittedByReason' AS omitted_by_reason
FROM tool_invocation
WHERE tool_name = 'lookup' AND found IS FALSE AND status NOT IN ('ERROR', 'CANCELLED')
"""

# Ranked by narrow rows; only those that remain are read whole.
SLOW = """
CREATE VIEW lookup_slow WITH (security_invoker = true) AS
SELECT i.tenant_id, i.context_id, i.id AS invocation_id, i.created_at, ranked.day, i.surface, i.status,
       i.arguments ->> 'query' AS query, i.duration_ms,
       (i.retrieval_details #>> '{layers,l0,durationMs}')::double precision AS l0_ms,
       (i.retrieval_details #>> '{layers,l1,durationMs}')::double precision AS l1_ms,
       i.trace_id, ranked.share_not_slower
FROM (
  SELECT tenant_id, id, created_at, (created_at AT TIME ZONE 'UTC')::date AS day,
         cume_dist() OVER (
           PARTITION BY tenant_id, (created_at AT TIME ZONE 'UTC')::date ORDER BY duration_ms
         ) AS share_not_slower
  FROM tool_invocation
  WHERE tool_name = 'lookup'
) AS ranked
JOIN tool_invocation i USING (tenant_id, id, created_at)
WHERE ranked.share_not_slower > 0.95
"""

USAGE = """
CREATE VIEW source_usage WITH (security_invoker = true) AS
SELECT tenant_id, context_id, coalesce(source, source_key) AS source,
       count(DISTINCT invocation_id) AS lookups,
       count(*) AS blocks,
       count(*) FILTER (WHERE rank = 1) AS first_places,
       avg(rank)::double precision AS mean_rank,
       min(created_at) AS first_used,
       max(created_at) AS last_used
FROM tool_invocation_evidence
GROUP BY tenant_id, context_id, coalesce(source, source_key)
"""

VIEWS = {
    "tool_invocation_evidence": EVIDENCE,
    "tool_invocation_lanes": LANES,
    "tool_invocation_omitted": OMITTED,
    "tool_invocation_candidates": CANDIDATES,
    "lookup_misses": MISSES,
    "lookup_slow": SLOW,
    "source_usage": USAGE,
}


def upgrade() -> None:
    op.execute(TABLE)
    for index in INDEXES:
        op.execute(index)
    op.execute(COMPRESSION)
    op.execute("CREATE TABLE tool_invocation_p2000_default PARTITION OF tool_invocation DEFAULT")
    op.execute("REVOKE ALL ON tool_invocation, tool_invocation_p2000_default FROM PUBLIC, strata_app")
    for table in ("tool_invocation", "tool_invocation_p2000_default"):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(
        "CREATE POLICY tenant_isolation ON tool_invocation "
        "USING (tenant_id = (SELECT strata_tenant())) WITH CHECK (tenant_id = (SELECT strata_tenant()))"
    )
    op.execute("GRANT SELECT, INSERT ON tool_invocation TO strata_app")
    op.execute(PARTITIONS)
    op.execute(PINNED)
    op.execute("REVOKE ALL ON FUNCTION strata_invocation_partitions(integer) FROM PUBLIC")
    op.execute("GRANT EXECUTE ON FUNCTION strata_invocation_partitions(integer) TO strata_app")
    op.execute(f"SELECT strata_invocation_partitions({WEEKS_AHEAD})")
    for name, view in VIEWS.items():
        op.execute(view)
        op.execute(f"GRANT SELECT ON {name} TO strata_app")


def downgrade() -> None:
    for name in reversed(VIEWS):
        op.execute(f"DROP VIEW {name}")
    op.execute("DROP FUNCTION strata_invocation_partitions(integer)")
    op.execute("DROP TABLE tool_invocation")
