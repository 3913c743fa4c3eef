-- Identities: an attempt can be read alone for as long as it is kept. Its topic, key, sequence, tenant, aggregate and
-- dedupe key are those of the message. When retention removes a day of messages, the fields of the topics whose floor
-- says keeps_identity are copied, in one statement, into a narrow table that is dropped with the attempts of the day.

-- Whether the identities of a day of messages have to be kept and are not kept yet.
CREATE OR REPLACE FUNCTION needs_identities(p_day date) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM floors_of_day(p_day) f WHERE f.keeps_identity)
     AND to_regclass('message_identities_' || to_char(p_day, 'YYYYMMDD')) IS NULL
$$;

-- Copies the identities of a past day of messages; returns how many. The partition is made like one of messages, and is
-- there only when the copy is complete.
CREATE OR REPLACE FUNCTION keep_identities(p_day date) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC' SET lock_timeout = '2s'
AS $$
DECLARE
  v_table text := 'message_identities_' || to_char(p_day, 'YYYYMMDD');
  v_rows  bigint;
BEGIN
  PERFORM take_lock('partitions');
  IF to_regclass(quote_ident(v_table)) IS NOT NULL THEN RETURN 0; END IF;
  EXECUTE format('CREATE TABLE %I (LIKE message_identities INCLUDING ALL)', v_table);
  EXECUTE format(
    'INSERT INTO %I (message_id, sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type, aggregate_id)
     SELECT m.id, m.sequence, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id
       FROM %I m
      WHERE EXISTS (
              SELECT FROM retention_floors f
               WHERE f.keeps_identity
                 AND route_matches(f.topic, f.namespace, NULL, m.topic, m.namespace, NULL))
      ORDER BY m.id',
    v_table, 'messages_' || to_char(p_day, 'YYYYMMDD'));
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  EXECUTE (SELECT string_agg(m, '; ') FROM missing_protection(role_names(), v_table::regclass) m);
  EXECUTE format('ALTER TABLE message_identities ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', v_table,
                 id_at(p_day::timestamp AT TIME ZONE 'UTC'), id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC'));
  EXECUTE format('ANALYZE %I', v_table);
  RETURN v_rows;
END $$;
