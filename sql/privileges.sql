-- Runs at the end of every transaction that creates objects. PUBLIC never has a right on them, nor has a role that only
-- default privileges gave one (ALTER DEFAULT PRIVILEGES), such as the roles of a platform's API: role_rights alone says
-- who may do what.
DO $$
DECLARE
  v_schema  text := quote_ident(current_schema());
  v_objects text;
  v_kind    "char";
  v_role    text;
BEGIN
  FOR v_kind, v_role IN
    SELECT k.kind, 'PUBLIC' FROM unnest('{n,r,S,f,T}'::"char"[]) k(kind)
    UNION ALL
    SELECT DISTINCT d.defaclobjtype, a.grantee::regrole::text
      FROM pg_default_acl d, aclexplode(d.defaclacl) a
     WHERE d.defaclrole = current_user::regrole
       AND d.defaclnamespace IN (0, v_schema::regnamespace)
       AND a.grantee NOT IN (0, d.defaclrole)
  LOOP
    v_objects := CASE v_kind
      WHEN 'n' THEN 'SCHEMA ' || v_schema
      WHEN 'r' THEN 'ALL TABLES IN SCHEMA ' || v_schema
      WHEN 'S' THEN 'ALL SEQUENCES IN SCHEMA ' || v_schema
      WHEN 'f' THEN 'ALL ROUTINES IN SCHEMA ' || v_schema
      WHEN 'T' THEN (
        SELECT 'TYPE ' || string_agg(format('%s.%I', v_schema, t.typname), ', ')
          FROM pg_type t
          LEFT JOIN pg_class c ON c.oid = t.typrelid
         WHERE t.typnamespace = v_schema::regnamespace
           AND (t.typtype = 'e' OR c.relkind = 'c'))
    END;
    IF v_objects IS NOT NULL THEN EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', v_objects, v_role); END IF;
  END LOOP;
END $$;
