-- Tests of destinations, without a way around the relays: what works for a test works for a message.

-- Enqueues a test message to one destination alone: claimed, delivered, retried and recorded like any other, by
-- whichever relay serves it, with the topic waybill.test. Cursors that read every topic see it too. Returns its id.
CREATE OR REPLACE FUNCTION send_test(destination text, actor text DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_destination destinations := find_destination(send_test.destination);
  v_actor       text := coalesce(actor, session_user);
  v_id          uuid := new_id();
  v_payload     jsonb := jsonb_build_object('test', true, 'destination', v_destination.name);
  v_headers     jsonb := jsonb_build_object('actor', v_actor);
BEGIN
  IF NOT v_destination.configured THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format(
      'destination is "%s", which is in no configuration any more: nobody would send it anything', v_destination.name);
  END IF;
  IF EXISTS (SELECT FROM cursors c WHERE c.destination_id = v_destination.id) THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format(
      'destination is "%s", which reads the log with a cursor: enqueue a message with a topic that it reads', v_destination.name);
  END IF;
  INSERT INTO messages (id, created_at, transaction_id, namespace, topic, headers, payload)
  VALUES (v_id, clock_timestamp(), pg_current_xact_id(), 'default', 'waybill.test', v_headers, v_payload);
  INSERT INTO deliveries (message_id, destination_id, available_at, bytes, namespace, tenant_id)
  VALUES (v_id, v_destination.id, clock_timestamp(), pg_column_size(v_payload) + pg_column_size(v_headers), 'default',
          turn_of((SELECT d.fairness FROM destinations d WHERE d.id = v_destination.id), NULL));
  PERFORM record_action(v_actor, 'send_test', jsonb_build_object('destination', v_destination.name, 'messageId', v_id), 1);
  PERFORM ring(ARRAY[v_destination.id]);
  RETURN v_id;
END $$;
