-- Step 3 of UPGRADE.md: enqueues the events that the old processor has not processed, in their order, and creates its
-- cursor. Run it after retire.sql and schema.sql, in the same transaction.

-- Refuses to lose events: processed_at says nothing about a second processor that is further behind.
DO $$
DECLARE
  v_behind record;
BEGIN
  SELECT c.processor_name, count(*) AS events
    INTO v_behind
    FROM _private_archive.cursors c
    LEFT JOIN _private_archive.outbox l ON l.event_id = c.last_processed_id
    JOIN _private_archive.outbox o
      ON (o.created_at, o.event_id)
         > (coalesce(l.created_at, c.last_processed_at, '-infinity'), coalesce(l.event_id, '00000000-0000-0000-0000-000000000000'))
   WHERE o.processed_at IS NOT NULL AND (SELECT count(*) FROM _private_archive.cursors) > 1
   GROUP BY c.processor_name ORDER BY count(*) DESC LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('the processor "%s" has not read %s events that another one has processed', v_behind.processor_name, v_behind.events),
      HINT = 'Nothing was changed. Let it catch up first, or delete its row from _private.cursors if nothing reads with it.';
  END IF;
END $$;

-- An event of the old outbox as a message. It keeps its event_id, for consumers that recognise repeats by it, and its
-- creation time; one in the future is due now. The dedupe key is for dead letters that are sent again.
CREATE FUNCTION _private_archive.as_message(e _private_archive.outbox) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object(
    'topic', 'job.' || e.event_type, 'tenantId', e.organization_id, 'key', e.record_id,
    'aggregateType', e.table_name, 'aggregateId', e.record_id, 'availableAt', least(e.created_at, now()),
    'dedupeKey', concat_ws('/', e.organization_id, e.event_id),
    'headers', jsonb_build_object('event_id', e.event_id::text, 'created_at', to_jsonb(e.created_at) #>> '{}'),
    'payload', jsonb_build_object('table', 'public.' || e.table_name, 'recordId', e.record_id, 'event', e.event_type,
                                  'record', e.payload))
$$;

SELECT outbox.define_destination(c.processor_name, 'subscription') FROM _private_archive.cursors c;
SELECT outbox.define_cursor(c.processor_name, 'beginning', '{job.*}') FROM _private_archive.cursors c;

-- In batches of 1,000, oldest first; dead letters stay in the archive. No dedupe keys: nothing can be moved twice, and
-- looking up thousands of them in a table that was never analyzed is slow.
DO $$
DECLARE
  v_batch jsonb;
  v_moved int := 0;
BEGIN
  FOR v_batch IN
    SELECT jsonb_agg(_private_archive.as_message(n.event) - 'dedupeKey' ORDER BY n.place)
      FROM (SELECT o AS event, row_number() OVER (ORDER BY o.created_at, o.event_id) AS place
              FROM _private_archive.outbox o
             WHERE o.processed_at IS NULL
               AND NOT EXISTS (SELECT FROM _private_archive.outbox_dlq d WHERE d.event_id = o.event_id)) n
     GROUP BY (n.place - 1) / 1000 ORDER BY (n.place - 1) / 1000
  LOOP
    PERFORM outbox.enqueue_many(v_batch);
    v_moved := v_moved + jsonb_array_length(v_batch);
  END LOOP;
  RAISE NOTICE '% unprocessed events were moved', v_moved;
END $$;
