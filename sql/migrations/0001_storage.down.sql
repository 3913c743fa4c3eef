-- Removes everything that Waybill has created, including messages: the schema belongs to Waybill alone.
DO $$ BEGIN EXECUTE format('DROP SCHEMA %I CASCADE', current_schema()); END $$;
