-- Test messages: check a destination the way real messages are sent, through the relays.

-- Enqueues a message with the topic waybill.test for one destination only. It is claimed, delivered, retried and
-- recorded like any other, by a relay that serves the destination. The test of an endpoint belongs to the endpoint's
-- tenant. Cursors that read every topic see it too. Returns its id.
CREATE OR REPLACE FUNCTION send_test(destination text, actor text DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_destination destinations := find_destination(send_test.destination);
  v_tenant_id   text := (
    SELECT e.tenant_id FROM endpoints e WHERE e.destination_id = v_destination.id);
  v_actor       text := coalesce(actor, session_user);
  v_id          uuid;
  v_payload     jsonb := jsonb_build_object('test', true, 'destination', v_destination.name);
  v_headers     jsonb := jsonb_build_object('actor', left(v_actor, 255));
  v_bytes       int := octet_length(v_payload::text) + octet_length(v_headers::text);
BEGIN
  IF NOT v_destination.configured THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('destination is "%s", which is in no configuration any more: no relay would deliver the test',
                       v_destination.name);
  END IF;
  IF EXISTS (SELECT FROM cursors c WHERE c.destination_id = v_destination.id) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('destination is "%s", which reads the log with a cursor: '
                       'enqueue a message with a topic that it reads', v_destination.name);
  END IF;
  PERFORM limit_tenant('test', 60, '1 minute');
  -- Every writer of messages reads this table before it makes an id (closed_messages).
  PERFORM FROM message_limits;
  v_id := new_id();
  INSERT INTO messages (id, created_at, transaction_id, bytes, namespace, topic, tenant_id, headers, payload)
  VALUES (v_id, clock_timestamp(), pg_current_xact_id(), v_bytes, 'default', 'waybill.test', v_tenant_id, v_headers,
          v_payload);
  INSERT INTO deliveries (message_id, destination_id, available_at, bytes, namespace, tenant_id)
  VALUES (v_id, v_destination.id, clock_timestamp(), v_bytes, 'default',
          fair_tenant((SELECT d.fairness FROM destinations d WHERE d.id = v_destination.id),
                      v_tenant_id));
  PERFORM record_action(v_actor, 'send_test',
                        jsonb_build_object('destination', v_destination.name, 'messageId', v_id), 1);
  PERFORM notify_relays(ARRAY[v_destination.id]);
  RETURN v_id;
END $$;
