-- A drain every 10 seconds, with pg_cron and pg_net: calls the site's processor. pg_cron before 1.5 knows no seconds and
-- calls it every minute. Run it with psql as a role that may use both, after the token was stored in the vault as
-- docs/guides/scheduled-drains.md shows; put the address of your processor in. It can be run again.

CREATE OR REPLACE FUNCTION public.drain_waybill() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = '' AS $$
  SELECT net.http_post(
    url := 'https://site.example.com/process',
    headers := jsonb_build_object('Content-Type', 'application/json', 'Authorization',
      'Bearer ' || (SELECT decrypted_secret FROM vault.decrypted_secrets WHERE name = 'waybill_drain_token')),
    timeout_milliseconds := 30000)
$$;
REVOKE EXECUTE ON FUNCTION public.drain_waybill() FROM PUBLIC;

DO $$
BEGIN
  PERFORM cron.schedule('waybill-drain', '10 seconds', 'SELECT public.drain_waybill()');
EXCEPTION WHEN others THEN
  -- an error of another kind comes again here
  PERFORM cron.schedule('waybill-drain', '* * * * *', 'SELECT public.drain_waybill()');
  RAISE WARNING 'every minute instead of every 10 seconds: %', SQLERRM
    USING HINT = 'Update pg_cron to 1.5 or newer, and run this again.';
END $$;
