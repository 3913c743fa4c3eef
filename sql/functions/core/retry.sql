-- Retry delay after a failed try; p_tries counts that try (1 after the first). It comes from an explicit list (n delays
-- mean one first try and n retries), or is min(base * 2^(tries-1), max) with equal jitter. Jitter makes the delay
-- uniform in [delay/2, delay], so that messages that failed together are not retried together. scheduledMs
-- (src/core/retry-policy.ts) has the same formula without jitter, to compare it with the Retry-After of a webhook.
CREATE OR REPLACE FUNCTION retry_delay(p_base_ms bigint, p_max_ms bigint, p_delays_ms bigint[], p_tries int)
RETURNS interval
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
  SELECT interval '1 millisecond' * CASE
    WHEN p_delays_ms IS NOT NULL THEN p_delays_ms[least(greatest(p_tries, 1), cardinality(p_delays_ms))]
    -- the exponent is capped so that the power never overflows; the delay reaches its maximum long before
    ELSE least(p_base_ms * 2.0 ^ least(greatest(p_tries, 1) - 1, 60), p_max_ms) * (0.5 + random() / 2)
  END
$$;
