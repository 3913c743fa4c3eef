-- The id up to which each replay may have requeued messages at its destination. It runs with the owner's rights,
-- because message_status uses it for tenants too, who may not read replays. It shows a time only, and no message of
-- another tenant.
CREATE OR REPLACE VIEW brought_back AS
SELECT r.destination_id, id_at(id_time(r.position) + interval '1 ms') AS before_id
  FROM replays r;
