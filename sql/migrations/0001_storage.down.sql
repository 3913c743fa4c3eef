-- Removes everything that Waybill made, the messages among it: the schema is Waybill's alone.
DO $$ BEGIN EXECUTE format('DROP SCHEMA %I CASCADE', current_schema()); END $$;
