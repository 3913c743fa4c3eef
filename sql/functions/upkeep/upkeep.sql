-- Upkeep: what a relay does for the whole database every few seconds, in one statement, because an idle relay must not
-- ask for each of these tasks separately.

-- p_reap: ends expired leases, and removes relays from the listeners that have not registered again. requeued: the
-- number of messages of these leases. unattended: the destinations that the removed relays had been polling.
-- next_expiry_ms: when the next lease expires; 0 if one has expired and could not be ended; null without leases.
-- p_sample: takes the sample of the statistics. pending: whether a delivery waits to be claimed.
-- A task that fails does not stop the others: problems has its name and error.
CREATE OR REPLACE FUNCTION upkeep(
  p_reap             boolean,
  p_sample           boolean,
  OUT requeued       int,
  OUT unattended     int[],
  OUT next_expiry_ms float8,
  OUT pending        boolean,
  OUT problems       text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  requeued := 0;
  unattended := '{}';
  pending := false;
  problems := '{}';
  -- before the reaping: otherwise the locks of the reaped leases would be held while the sample is taken
  IF p_sample THEN
    BEGIN
      pending := EXISTS (SELECT FROM first_due());
      PERFORM take_sample();
    EXCEPTION WHEN OTHERS THEN
      problems := problems || ('sample: ' || SQLERRM);
    END;
  END IF;
  IF p_reap THEN
    BEGIN
      requeued := reap();
    EXCEPTION WHEN OTHERS THEN
      problems := problems || ('reap: ' || SQLERRM);
    END;
    BEGIN
      unattended := remove_stale_listeners();
    EXCEPTION WHEN OTHERS THEN
      problems := problems || ('remove stale listeners: ' || SQLERRM);
    END;
    SELECT min(CASE
             WHEN is_held(l.expires_at, l.duration) THEN extract(epoch FROM l.expires_at - clock_timestamp()) * 1000
             ELSE 0
           END)
      INTO next_expiry_ms
      FROM leases l;
  END IF;
END $$;
