-- Hooks of dead letters: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of dead letters.
CREATE OR REPLACE FUNCTION rights_of_dead_letters() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{maintenance}'::text[], '{prune_jobs}'::text[]),
    ('{operator}', '{find_dead_letters,retry_dead_letters,discard_dead_letters,skip_dead_letters,start_job,'
                   'job_step,renew_job,release_job,fail_job,resume_job,cancel_job}'),
    ('{control,auditor}', '{find_dead_letters,count_dead_letters}')
$$;
