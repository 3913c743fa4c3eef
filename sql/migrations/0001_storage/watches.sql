-- Storage of watches.

-- Watches: one row per watched table and topic. The triggers carry the definition and do the work. This row records
-- that they should exist, so that a table that was dropped or rebuilt without them is noticed. given: the definition as
-- requested; requesting the same again changes nothing. owners: the applications that declare it, or 'sql'.
CREATE TABLE watches (
  table_id   regclass    NOT NULL,
  topic      text        NOT NULL,
  table_name text        NOT NULL,
  given      jsonb       NOT NULL,
  definition jsonb       NOT NULL,
  owners     text[]      NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (table_id, topic)
);

-- The watches that a relay or waybill apply declares; null if its configuration has none.
ALTER TABLE declarations ADD watches jsonb;

INSERT INTO locks (name) VALUES ('watch');
