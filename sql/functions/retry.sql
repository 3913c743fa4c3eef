-- How long to wait after a failed try (p_tries counts it: 1 after the first). Either an explicit list
-- (n delays mean one first try and n retries), or min(base * 2^(tries-1), max) with equal jitter:
-- uniform in [delay/2, delay], so that a crowd that failed together does not come back together.
CREATE OR REPLACE FUNCTION retry_delay(p_base_ms bigint, p_max_ms bigint, p_delays_ms bigint[], p_tries int)
RETURNS interval LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT interval '1 millisecond' * CASE
    WHEN p_delays_ms IS NOT NULL THEN p_delays_ms[least(greatest(p_tries, 1), cardinality(p_delays_ms))]
    -- the exponent is capped so that the power never overflows; the delay was at its maximum long before
    ELSE least(p_base_ms * 2.0 ^ least(greatest(p_tries, 1) - 1, 60), p_max_ms) * (0.5 + random() / 2)
  END
$$;
