-- Ids are UUIDv7, created only by the database: 48 bits of milliseconds, 12 bits for the fraction of the millisecond
-- (as in PostgreSQL 18), then random bits. Because an id contains its time, a range of time is a range of ids:
-- partitions, retention and windows need no index on a date.

-- A UUIDv7 of the current clock time.
CREATE OR REPLACE FUNCTION clock_id()
RETURNS uuid
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
AS $$
DECLARE
  v_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
  RETURN encode(
    substring(int8send(v_us / 1000) FROM 3)
      || int2send((28672 + (v_us % 1000) * 4096 / 1000)::int2)
      || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid;
END $$;

-- Whether PostgreSQL's own uuidv7() is ahead of the clock. That function never steps back within a session: after a
-- clock that ran ahead was corrected, open sessions would go on creating ids of the wrong time. Before PostgreSQL 18,
-- there is no such function.
--
-- new_id: a UUIDv7 of the current time, from uuidv7() unless that is ahead. batch_id: the same for many ids in one
-- statement, which asks once whether it is ahead. Asking calls uuidv7() too, which doubles the cost of an id.
--
-- The bodies are parsed now and not at each call, so they need no search_path and can be inlined.
DO $do$
DECLARE
  v_has_uuidv7 boolean := current_setting('server_version_num')::int >= 180000;
BEGIN
  EXECUTE 'CREATE OR REPLACE FUNCTION is_uuidv7_ahead() RETURNS boolean LANGUAGE sql VOLATILE PARALLEL SAFE RETURN '
    || CASE WHEN v_has_uuidv7
            THEN $sql$uuid_extract_timestamp(uuidv7()) > clock_timestamp() + interval '1 second'$sql$
            ELSE 'false'
       END;
  EXECUTE 'CREATE OR REPLACE FUNCTION batch_id(p_ahead boolean) RETURNS uuid '
    || 'LANGUAGE sql VOLATILE PARALLEL SAFE RETURN '
    || CASE WHEN v_has_uuidv7 THEN 'CASE WHEN p_ahead THEN clock_id() ELSE uuidv7() END' ELSE 'clock_id()' END;
END $do$;
CREATE OR REPLACE FUNCTION new_id()
RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN batch_id(is_uuidv7_ahead());

-- The smallest id of this time, as a bound for ranges.
CREATE OR REPLACE FUNCTION id_at(p_time timestamptz)
RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT (lpad(to_hex((extract(epoch FROM p_time) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;

-- The time at which an id was created, to the millisecond.
CREATE OR REPLACE FUNCTION id_time(p_id uuid)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT to_timestamp(('x0000' || substr(translate(p_id::text, '-', ''), 1, 12))::bit(64)::bigint / 1000.0)
$$;

-- The slot of an id: its time in units of 2^16 milliseconds, about a minute. Never negative, and never lower for a
-- higher id. The indexes of the filters of lists contain this expression, so it must not change. A query that orders by
-- slot and id reads such an index in order, and sorts only within a slot.
CREATE OR REPLACE FUNCTION id_slot(p_id uuid)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT ('x' || left(p_id::text, 8))::bit(32)::bigint
$$;
