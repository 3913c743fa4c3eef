-- Versions of Waybill that work with this schema. The schema is upgraded first, while relays of the previous version go
-- on running. Each migration names the oldest version that may do so (applied_files.works_with); older relays are
-- refused.

-- A version as an array that compares in the order of semantic versioning: 0.10.0 is newer than 0.9.1; 0.10.0-rc.2 is
-- newer than 0.10.0-rc.1 and older than 0.10.0. Builds of a version are equal. Null if the text is not a version.
-- Encoding of a pre-release: a number (1, its length, its digits) sorts before a name (2, its letters, 0), and both
-- sort before the release itself (3).
CREATE OR REPLACE FUNCTION version_number(p_version text)
RETURNS int[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT string_to_array(v.part[1], '.')::int[]
         || CASE
              WHEN v.part[2] IS NULL THEN ARRAY[3]
              ELSE ARRAY (
                SELECT c.code
                  FROM unnest(string_to_array(v.part[2], '.')) WITH ORDINALITY w(word, place)
                 CROSS JOIN LATERAL (SELECT w.word ~ '^[0-9]+$', ltrim(w.word, '0')) k(is_number, digits)
                 CROSS JOIN LATERAL unnest(
                        CASE WHEN k.is_number THEN ARRAY[1, length(k.digits)] ELSE ARRAY[2] END
                        || ARRAY (
                             SELECT ascii(substr(l.letters, i, 1))
                               FROM (SELECT CASE WHEN k.is_number THEN k.digits ELSE w.word END) l(letters),
                                    generate_series(1, length(l.letters)) i
                              ORDER BY i)
                        || CASE WHEN k.is_number THEN '{}'::int[] ELSE ARRAY[0] END)
                        WITH ORDINALITY c(code, at)
                 ORDER BY w.place, c.at)
            END
    FROM regexp_match(
           p_version, '^([0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$') v(part)
   WHERE v.part IS NOT NULL
$$;

-- Refuses a relay that is too old for this schema. It is part of functions that relays of every version call: before
-- they claim anything, and with each heartbeat.
CREATE OR REPLACE FUNCTION refuse_old_relay(p_version text)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_oldest text := (
    SELECT f.works_with
      FROM applied_files f
     WHERE version_number(f.works_with) > version_number(p_version)
     ORDER BY version_number(f.works_with) DESC
     LIMIT 1);
BEGIN
  IF v_oldest IS NOT NULL THEN
    -- relays recognise this error by the column, and stop; other errors have the same code 0A000
    RAISE EXCEPTION USING ERRCODE = '0A000', TABLE = 'applied_files', COLUMN = 'works_with',
      MESSAGE = format(
        'the schema %I works with relays of Waybill %s and newer, and this relay is Waybill %s: upgrade it',
        current_schema(), v_oldest, p_version);
  END IF;
END $$;

-- The SQL files of a program, {"functions/core/claim.sql": checksum, …}, that this schema lacks: migrations that were
-- not applied, and functions and views that an older version applied last. Files that a newer version has changed do
-- not count.
CREATE OR REPLACE FUNCTION lacking_files(p_version text, p_files jsonb)
RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  -- checked before anything is written: a relay that is too old must not leave its definitions behind
  SELECT refuse_old_relay(p_version);
  SELECT g.file
    FROM jsonb_each_text(p_files) g(file, checksum)
    LEFT JOIN applied_files f ON f.file = g.file
   WHERE f.file IS NULL
         AND (g.file LIKE 'migrations/%'
              OR NOT EXISTS (
                   SELECT FROM applied_files n
                    WHERE version_number(n.version) > version_number(p_version)))
      OR f.checksum <> g.checksum
         AND version_number(f.version) < version_number(p_version)
   ORDER BY g.file
$$;
