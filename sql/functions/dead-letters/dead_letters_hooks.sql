-- Hooks of dead letters: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of dead letters.
CREATE OR REPLACE FUNCTION rights_of_dead_letters() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{maintenance}'::text[], '{prune_jobs,prune_discarded_letters}'::text[]),
    ('{operator}', '{find_dead_letters,retry_dead_letters,discard_dead_letters,skip_dead_letters,'
                   'restore_dead_letters,start_job,job_step,renew_job,release_job,fail_job,resume_job,cancel_job}'),
    ('{control,auditor}', '{find_dead_letters,count_dead_letters,dead_letter_groups}')
$$;

-- The tables of dead letters, beside those of the core.
CREATE OR REPLACE FUNCTION tables_of_dead_letters() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{discarded_letters}'::text[]
$$;

-- Hook: after a replay, forgets the discarded letters of the replayed messages, so that they cannot be restored.
CREATE OR REPLACE FUNCTION replayed_of_dead_letters(p_destination_id int, p_ids uuid[]) RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  DELETE FROM discarded_letters d
   WHERE d.message_id = ANY (p_ids)
     AND d.destination_id = p_destination_id
$$;
