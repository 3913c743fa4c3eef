-- Storage of tokens: access to the HTTP API and the page.

-- Tokens of the HTTP API; only hashes are stored. A token with a tenant sees that tenant alone. for_endpoints: a tenant
-- token, which opens the endpoints of its tenant and nothing else, and is deleted after its end.
CREATE TABLE tokens (
  name          text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}$'),
  hash          bytea       NOT NULL UNIQUE,
  scope         text        NOT NULL CHECK (scope IN ('read', 'operate', 'admin')),
  tenant_id     text,
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at    timestamptz NOT NULL DEFAULT 'infinity',
  last_used_at  timestamptz,
  for_endpoints boolean     NOT NULL DEFAULT false CHECK (NOT for_endpoints OR tenant_id IS NOT NULL)
);
CREATE INDEX tokens_of_tenants ON tokens (expires_at) WHERE for_endpoints;

-- Logins to the page, each made with a token and deleted with it.
CREATE TABLE sessions (
  hash       bytea       PRIMARY KEY,
  token      text        NOT NULL REFERENCES tokens ON DELETE CASCADE,
  expires_at timestamptz NOT NULL
);
