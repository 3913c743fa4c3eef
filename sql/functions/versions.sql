-- Which versions of Waybill work with this schema. The schema is upgraded first, and relays of the version before go on
-- with it: each migration says the oldest that may (applied_files.works_with), and whoever is older is refused.

-- For comparing: 0.10.0 is newer than 0.9.1. Pre-releases count as what they lead to; null for what is no version.
CREATE OR REPLACE FUNCTION version_number(p_version text) RETURNS int[]
LANGUAGE sql IMMUTABLE AS $$
  SELECT string_to_array(substring(p_version FROM '^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}'), '.')::int[]
$$;

-- Every relay comes by here before it claims anything, and with each heartbeat, those too that know nothing of it.
CREATE OR REPLACE FUNCTION refuse_old_relay(p_version text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  v_oldest text := (SELECT f.works_with FROM applied_files f WHERE version_number(f.works_with) > version_number(p_version)
                     ORDER BY version_number(f.works_with) DESC LIMIT 1);
BEGIN
  IF v_oldest IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format(
      'the schema %I works with relays of Waybill %s and newer, and this relay is Waybill %s: upgrade it', current_schema(), v_oldest, p_version);
  END IF;
END $$;

-- Those of a program's own SQL files, {"functions/claim.sql": checksum, …}, that this schema lacks: migrations that were
-- not applied, and functions and views that an older version applied last. What a newer one has changed is not lacking.
CREATE OR REPLACE FUNCTION lacking_files(p_version text, p_files jsonb) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  -- asked before anything is written: one that is too old must not leave its definitions behind
  SELECT refuse_old_relay(p_version);
  SELECT g.file FROM jsonb_each_text(p_files) g(file, checksum) LEFT JOIN applied_files f ON f.file = g.file
   WHERE f.file IS NULL AND (g.file LIKE 'migrations/%' OR NOT EXISTS (
           SELECT FROM applied_files n WHERE version_number(n.version) > version_number(p_version)))
      OR f.checksum <> g.checksum AND version_number(f.version) < version_number(p_version)
   ORDER BY g.file
$$;
