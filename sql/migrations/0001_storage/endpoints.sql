-- Storage of endpoints.

-- Endpoints: webhooks that are stored here instead of in a configuration; each is a destination of its own. secrets:
-- [{"sealed", "fingerprint", "since"}], the newest first; only a relay with the encryption key can open them. auth:
-- {"type", "sealed"}. version counts the changes. changed_in is the transaction of the last change, by which relays
-- find it.
CREATE TABLE endpoints (
  destination_id  int         PRIMARY KEY REFERENCES destinations,
  url             text        NOT NULL,
  topics          text[]      NOT NULL,
  namespace       text,
  tenant_id       text,
  description     text,
  body            text,
  secrets         jsonb       NOT NULL,
  sealed_headers  text,
  -- parameters that are added to the address
  sealed_query    text,
  auth            jsonb,
  -- which payloads it wants (sql/functions/endpoints/endpoint_filter.sql); null: all
  filter          jsonb,
  -- older messages are not sent; null: all are
  expire_after_ms bigint,
  -- {"perSecond", "burst"}; these three are null: as the settings of the relays say
  rate            jsonb,
  concurrency     int,
  timeout_ms      int,
  -- names and texts by which operators find it; null: none
  labels          jsonb,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  removed_at      timestamptz,
  version         int         NOT NULL DEFAULT 1,
  changed_in      xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX endpoints_by_change ON endpoints (changed_in);
CREATE INDEX endpoints_removed ON endpoints (removed_at) WHERE removed_at IS NOT NULL;
CREATE INDEX endpoints_by_tenant ON endpoints (tenant_id, destination_id) WHERE removed_at IS NULL;
-- for lists, the newest first, of all and of those that are disabled, and for searches by the beginning of an address,
-- a name or a tenant
CREATE INDEX endpoints_listed ON endpoints (destination_id) WHERE removed_at IS NULL;
CREATE INDEX endpoints_by_url ON endpoints (url COLLATE "C") WHERE removed_at IS NULL;
CREATE INDEX endpoints_by_label ON endpoints USING gin (labels jsonb_path_ops)
  WHERE removed_at IS NULL AND labels IS NOT NULL;
CREATE INDEX endpoints_by_tenant_prefix ON endpoints (tenant_id COLLATE "C") WHERE removed_at IS NULL;
CREATE INDEX endpoints_disabled ON destinations (id) WHERE origin = 'database' AND paused_at IS NOT NULL;
CREATE INDEX endpoints_by_name ON destinations (name COLLATE "C") WHERE origin = 'database';

-- Endpoints that fail: one row while an endpoint has had failures only. failing_since: the first failure since the last
-- success. warned_at: when the application was warned. Not columns of endpoints: an open transaction that changes an
-- endpoint locks its row, and the relays would wait for it. See sql/functions/endpoints/endpoint_failures.sql.
CREATE TABLE endpoint_failures (
  destination_id int         PRIMARY KEY,
  failing_since  timestamptz NOT NULL,
  warned_at      timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);

-- The settings that all endpoints share, from the relay that was started last: one row. The default delays are those
-- that the Standard Webhooks specification proposes.
CREATE TABLE endpoint_settings (
  one              boolean  PRIMARY KEY DEFAULT true CHECK (one),
  max_attempts     int      NOT NULL DEFAULT 10,
  retry_base_ms    bigint   NOT NULL DEFAULT 0,
  retry_max_ms     bigint   NOT NULL DEFAULT 0,
  retry_delays_ms  bigint[] DEFAULT '{5000,300000,1800000,7200000,18000000,36000000,50400000,72000000,86400000}',
  when_dead        text     NOT NULL DEFAULT 'continue',
  max_per_tenant   int      NOT NULL DEFAULT 100,
  -- after how long with failures only the application is warned, and the endpoint disabled; null: never
  warn_after_ms    bigint   DEFAULT 86400000,
  disable_after_ms bigint   DEFAULT 432000000,
  -- the most that an endpoint may have of its own
  max_concurrency  int      NOT NULL DEFAULT 20,
  max_timeout_ms   int      NOT NULL DEFAULT 60000
);
INSERT INTO endpoint_settings DEFAULT VALUES;
