-- Up to which id each replay may have brought messages back to its destination. With the owner's rights, because
-- message_status asks it for tenants too, who may not read replays; so it is a time, and no message of anybody.
CREATE OR REPLACE VIEW brought_back AS
SELECT r.destination_id, id_at(id_time(r.position) + interval '1 ms') AS before_id FROM replays r;
