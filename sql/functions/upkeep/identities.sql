-- Identities: an attempt can be read alone for as long as it is kept. Its topic, key, sequence, tenant, aggregate and
-- dedupe key are those of the message. When retention removes a day of messages, the fields of the topics whose floor
-- says keeps_identity are copied, in one statement, into a narrow table that is dropped with the attempts of the day.

-- Whether the identities of a day of messages have to be kept and are not kept yet. A floor may have come after the day
-- was thinned: then those of the messages that are left are added.
CREATE OR REPLACE FUNCTION needs_identities(p_day date) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
  SELECT EXISTS (SELECT FROM floors_of_day(p_day) f WHERE f.keeps_identity)
     AND (to_regclass('message_identities_' || to_char(p_day, 'YYYYMMDD')) IS NULL
          OR (is_thinned('messages', p_day)
              AND EXISTS (
                    SELECT FROM messages m
                     WHERE m.id >= id_at(p_day::timestamp AT TIME ZONE 'UTC')
                       AND m.id < id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC')
                       AND keeps_identity(m.topic, m.namespace)
                       AND NOT EXISTS (
                             SELECT FROM message_identities i
                              WHERE i.message_id = m.id))))
$$;

-- Whether the attempts of a message keep its identity.
CREATE OR REPLACE FUNCTION keeps_identity(p_topic text, p_namespace text) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM retention_floors f
     WHERE f.keeps_identity
       AND route_matches(f.topic, f.namespace, NULL, p_topic, p_namespace, NULL))
$$;

-- Copies the identities of a past day of messages; returns how many. The partition is made like one of messages, and is
-- there only when the copy is complete.
CREATE OR REPLACE FUNCTION keep_identities(p_day date) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC' SET lock_timeout = '2s'
AS $$
DECLARE
  v_table  text := 'message_identities_' || to_char(p_day, 'YYYYMMDD');
  v_exists boolean;
  v_rows   bigint;
BEGIN
  PERFORM take_lock('partitions');
  v_exists := to_regclass(v_table) IS NOT NULL;
  IF NOT v_exists THEN PERFORM make_partition_table('message_identities', v_table); END IF;
  EXECUTE format(
    'INSERT INTO %I (message_id, sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type, aggregate_id)
     SELECT m.id, m.sequence, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id
       FROM %I m
      WHERE EXISTS (
              SELECT FROM retention_floors f
               WHERE f.keeps_identity
                 AND route_matches(f.topic, f.namespace, NULL, m.topic, m.namespace, NULL))
      ORDER BY m.id
     ON CONFLICT DO NOTHING',
    v_table, 'messages_' || to_char(p_day, 'YYYYMMDD'));
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_exists THEN RETURN v_rows; END IF;
  EXECUTE format('ALTER TABLE message_identities ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', v_table,
                 id_at(p_day::timestamp AT TIME ZONE 'UTC'), id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC'));
  EXECUTE format('ANALYZE %I', v_table);
  RETURN v_rows;
END $$;
