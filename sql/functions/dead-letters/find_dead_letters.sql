-- Finds dead letters: the filter that listing, counting, retry, skip and discard share.

-- The letters of ids at these destinations, one for each id, in the form that dead_letter_matches compares; null if
-- destinations is null.
CREATE OR REPLACE FUNCTION letters_at(ids uuid[], destinations text[]) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF destinations IS NULL THEN RETURN NULL; END IF;
  IF cardinality(destinations) IS DISTINCT FROM cardinality(ids) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('destinations has %s entries and ids has %s: give a destination for each id',
                       cardinality(destinations), coalesce(cardinality(ids), 0));
  END IF;
  RETURN ARRAY (
    SELECT l.id::text || ' ' || d.id::text
      FROM unnest(ids, destinations) l(id, name)
      JOIN (SELECT n.name, (find_destination(n.name)).id
              FROM (SELECT DISTINCT name FROM unnest(destinations) name) n) d ON d.name = l.name);
END $$;

-- Whether a dead letter matches a filter; null matches all. The planner inlines it, which it could not do with a
-- search_path of its own. p_letters: see letters_at.
CREATE OR REPLACE FUNCTION dead_letter_matches(
  p_letter      dead_letters,
  p_ids         uuid[],
  p_error_code  text,
  p_topic       text,
  p_tenant_id   text,
  p_dead_before timestamptz,
  p_causes      text[],
  p_letters     text[])
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
  SELECT (p_ids IS NULL OR p_letter.message_id = ANY (p_ids))
     AND (p_error_code IS NULL OR p_letter.error_code = p_error_code)
     AND (p_topic IS NULL OR p_letter.topic = p_topic)
     AND (p_tenant_id IS NULL OR p_letter.tenant_id = p_tenant_id)
     AND (p_dead_before IS NULL OR p_letter.dead_at < p_dead_before)
     AND (p_causes IS NULL OR cause_of(p_letter.error_code, p_letter.remote_code) = ANY (p_causes))
     AND (p_letters IS NULL OR p_letter.message_id::text || ' ' || p_letter.destination_id::text = ANY (p_letters))
$$;

-- A filter of dead letters as the audit records it.
CREATE OR REPLACE FUNCTION dead_letter_subject(
  p_destination  text,
  p_ids          uuid[],
  p_error_code   text,
  p_topic        text,
  p_tenant_id    text,
  p_dead_before  timestamptz,
  p_causes       text[],
  p_destinations text[])
RETURNS jsonb
LANGUAGE sql STABLE
AS $$
  SELECT jsonb_build_object('destination', p_destination, 'ids', p_ids, 'errorCode', p_error_code, 'topic', p_topic,
                            'tenantId', p_tenant_id, 'deadBefore', p_dead_before)
         || jsonb_strip_nulls(jsonb_build_object('causes', p_causes, 'destinations', p_destinations))
$$;

-- How many dead letters match; counting stops at max_count. It does not use find_dead_letters, which would build whole
-- letters.
CREATE OR REPLACE FUNCTION count_dead_letters(
  destination  text DEFAULT NULL,
  ids          uuid[] DEFAULT NULL,
  error_code   text DEFAULT NULL,
  topic        text DEFAULT NULL,
  tenant_id    text DEFAULT NULL,
  dead_before  timestamptz DEFAULT NULL,
  max_count    int DEFAULT 100000,
  causes       text[] DEFAULT NULL,
  destinations text[] DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
  v_destination_id int := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
  v_letters        text[] := letters_at(ids, destinations);
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  RETURN (
    SELECT count(*)
      FROM (SELECT
              FROM dead_letters d
             WHERE (v_destination_id IS NULL OR d.destination_id = v_destination_id)
               AND dead_letter_matches(d, count_dead_letters.ids, count_dead_letters.error_code,
                                       count_dead_letters.topic, count_dead_letters.tenant_id,
                                       count_dead_letters.dead_before, causes, v_letters)
             LIMIT max_count) x);
END $$;

-- The dead letters that match, oldest first: the filter that listing, retry, skip and discard share. only_those:
-- 'sendable', those that a retry requeues; 'blocking', those that block a key; 'expired', those that retention may
-- discard; null, all of them. causes: see cause_of. destinations: the destination of each of ids; without it, the
-- letters of these messages at all destinations.
CREATE OR REPLACE FUNCTION find_dead_letters(
  destination  text DEFAULT NULL,
  ids          uuid[] DEFAULT NULL,
  error_code   text DEFAULT NULL,
  topic        text DEFAULT NULL,
  tenant_id    text DEFAULT NULL,
  dead_before  timestamptz DEFAULT NULL,
  max_count    int DEFAULT 1000,
  only_those   text DEFAULT NULL,
  causes       text[] DEFAULT NULL,
  destinations text[] DEFAULT NULL)
RETURNS SETOF dead_letters
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
  v_destination_id int := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
  v_letters        text[] := letters_at(ids, destinations);
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  RETURN QUERY
    SELECT d.*
      FROM dead_letters d
     WHERE (v_destination_id IS NULL OR d.destination_id = v_destination_id)
       AND dead_letter_matches(d, find_dead_letters.ids, find_dead_letters.error_code, find_dead_letters.topic,
                               find_dead_letters.tenant_id, find_dead_letters.dead_before, causes, v_letters)
       AND CASE only_those
             -- without its message it can only be discarded; a parked one returns only with the dead letter that
             -- blocks it
             WHEN 'sendable' THEN
               d.payload IS NOT NULL
               AND NOT (d.reason = 'parked' AND EXISTS (
                     SELECT FROM lanes l
                      WHERE l.destination_id = d.destination_id
                        AND l.key_id = d.key_id
                        AND l.blocked_by IS NOT NULL))
             WHEN 'blocking' THEN
               EXISTS (
                 SELECT FROM lanes l
                  WHERE l.blocked_by = d.message_id
                    AND l.destination_id = d.destination_id)
             -- retention does not unblock lanes, which is an operator's decision, and keeps to the retention floors
             WHEN 'expired' THEN
               d.reason <> 'parked'
               AND NOT EXISTS (
                     SELECT FROM retention_floors r
                      WHERE route_matches(r.topic, r.namespace, NULL, d.topic, d.namespace, NULL)
                        AND d.dead_at >= expired_before(r.dead_letters_days))
               AND NOT EXISTS (
                     SELECT FROM lanes l
                      WHERE l.blocked_by = d.message_id
                        AND l.destination_id = d.destination_id)
             ELSE true
           END
     ORDER BY d.dead_at, d.message_id
     LIMIT max_count;
END $$;
