-- Ids are UUIDv7, made by the database only: 48 bits of milliseconds, then 12 bits of the fraction
-- of the millisecond (as PostgreSQL 18 does it), then randomness. Because the time is in the id,
-- ranges of time are ranges of ids: partitions, retention and windows need no index on a date.

DO $do$ BEGIN
  IF current_setting('server_version_num')::int >= 180000 THEN
    EXECUTE 'CREATE OR REPLACE FUNCTION new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
             AS ''SELECT pg_catalog.uuidv7()''';
  ELSE
    EXECUTE $sql$
      CREATE OR REPLACE FUNCTION new_id() RETURNS uuid LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $body$
      DECLARE
        v_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
      BEGIN
        RETURN encode(
          substring(int8send(v_us / 1000) FROM 3)
            || int2send((28672 + (v_us % 1000) * 4096 / 1000)::int2)
            || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid;
      END $body$
    $sql$;
  END IF;
END $do$;

-- The smallest id that can be made at this time: a bound for ranges.
CREATE OR REPLACE FUNCTION id_at(p_time timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT (lpad(to_hex((extract(epoch FROM p_time) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid $$;

-- The time, to the millisecond, at which an id was made.
CREATE OR REPLACE FUNCTION id_time(p_id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT to_timestamp(('x0000' || substr(translate(p_id::text, '-', ''), 1, 12))::bit(64)::bigint / 1000.0) $$;
