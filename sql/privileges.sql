-- Runs at the end of every transaction that creates objects, so that PUBLIC never has a right on them.
DO $$ BEGIN
  EXECUTE format('REVOKE ALL ON SCHEMA %I FROM PUBLIC', current_schema());
  EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM PUBLIC', current_schema());
  EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM PUBLIC', current_schema());
  EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA %I FROM PUBLIC', current_schema());
  EXECUTE (SELECT string_agg(format('REVOKE ALL ON TYPE %I.%I FROM PUBLIC', current_schema(), t.typname), '; ')
             FROM pg_type t
            WHERE t.typnamespace = quote_ident(current_schema())::regnamespace
              AND t.typtype = 'e');
END $$;
