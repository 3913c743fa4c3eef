-- Jobs: retry, skip or discard all dead letters that match a filter and had died when the job was planned.
--
-- A job is a row in jobs. Each step changes one bounded batch in one transaction and counts it there, so done is exact
-- wherever the runner dies. Dead letters that were handled are gone, so another runner can continue, and none is
-- handled twice. One runner holds a job at a time, by the clock of the database.
--
-- A batch does not lock the row of its job until its end, so a cancel does not wait for it. Changes of dead letters are
-- serialized (await_dead_letters). Otherwise a job could find no letters while another holds them, and end too early.

-- Starts a job and holds it for the caller; job_step does the work. tenant_id filters the letters, as the other fields
-- do. limited_to is the tenant to which the caller is limited.
CREATE OR REPLACE FUNCTION start_job(
  action      text,
  dead_before timestamptz,
  planned     bigint,
  holder      uuid,
  held_ms     int,
  destination text DEFAULT NULL,
  ids         uuid[] DEFAULT NULL,
  error_code  text DEFAULT NULL,
  topic       text DEFAULT NULL,
  tenant_id   text DEFAULT NULL,
  limited_to  text DEFAULT NULL,
  actor       text DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_id uuid;
BEGIN
  PERFORM checked_number('held_ms', held_ms, 1, 600000);
  IF coalesce(action NOT IN ('retry', 'skip', 'discard'), true) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('action is %s: give retry, skip or discard', coalesce(action, 'null'));
  END IF;
  IF limited_to <> tenant_id OR (limited_to IS NOT NULL AND tenant_id IS NULL) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('tenant_id is %s, and the caller is limited to %s: give that tenant',
                       coalesce(tenant_id, 'null'), limited_to);
  END IF;
  IF destination IS NOT NULL THEN PERFORM find_destination(destination); END IF;
  INSERT INTO jobs AS j (action, filter, dead_before, tenant_id, actor, planned, holder, held_until)
  VALUES (start_job.action,
          jsonb_strip_nulls(jsonb_build_object(
            'destination', destination, 'ids', ids, 'errorCode', error_code, 'topic', topic,
            'tenantId', start_job.tenant_id)),
          start_job.dead_before, limited_to, coalesce(start_job.actor, session_user), start_job.planned,
          start_job.holder, clock_timestamp() + held_ms * interval '1 ms')
  RETURNING j.id INTO v_id;
  RETURN v_id;
END $$;

-- Runs one step of a job for its holder: changes at most max_count letters, and holds the job for held_ms more. Returns
-- how many it changed, and the state. Call it until goes_on is false: the job has ended, or another runner holds it.
CREATE OR REPLACE FUNCTION job_step(
  job_id      uuid,
  holder      uuid,
  held_ms     int,
  max_count   int DEFAULT 1000,
  OUT changed int,
  OUT state   text,
  OUT goes_on boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_job jobs;
  v_ids uuid[];
BEGIN
  PERFORM checked_number('held_ms', held_ms, 1, 600000);
  PERFORM checked_number('max_count', max_count, 1, 10000);
  PERFORM assert_read_committed('job_step');
  SELECT * INTO v_job FROM jobs j WHERE j.id = job_id;
  changed := 0;
  state := v_job.state;
  -- no row: maintenance removes only jobs that have ended
  goes_on := coalesce(v_job.state = 'running' AND v_job.holder = job_step.holder, false);
  IF NOT goes_on THEN RETURN; END IF;

  v_ids := CASE
    WHEN v_job.filter ? 'ids' THEN ARRAY (SELECT i::uuid FROM jsonb_array_elements_text(v_job.filter -> 'ids') i)
  END;
  changed := CASE v_job.action
    WHEN 'retry' THEN
      retry_dead_letters(v_job.filter ->> 'destination', v_ids, v_job.filter ->> 'errorCode', v_job.filter ->> 'topic',
                         v_job.filter ->> 'tenantId', v_job.dead_before, max_count, v_job.actor)
    WHEN 'skip' THEN
      skip_dead_letters(v_job.filter ->> 'destination', v_ids, v_job.filter ->> 'errorCode', v_job.filter ->> 'topic',
                        v_job.filter ->> 'tenantId', v_job.dead_before, max_count, v_job.actor)
    ELSE
      discard_dead_letters(v_job.filter ->> 'destination', v_ids, v_job.filter ->> 'errorCode',
                           v_job.filter ->> 'topic', v_job.filter ->> 'tenantId', v_job.dead_before, max_count,
                           v_job.actor)
  END;

  -- the job may have been cancelled or taken over meanwhile: the batch counts, and the rest stays as it is
  UPDATE jobs j
     SET done = j.done + changed,
         state = CASE WHEN j.state = 'running' AND changed = 0 THEN 'done' ELSE j.state END,
         ended_at = CASE WHEN j.state = 'running' AND changed = 0 THEN clock_timestamp() ELSE j.ended_at END,
         held_until = CASE
           WHEN j.holder = job_step.holder THEN clock_timestamp() + held_ms * interval '1 ms'
           ELSE j.held_until
         END
   WHERE j.id = job_id
  RETURNING j.state, j.state = 'running' AND j.holder = job_step.holder INTO state, goes_on;
END $$;

-- Heartbeat of the holder. held_ms 0 gives the job up, so that another runner can continue it. False: the job has
-- ended, or another runner holds it.
CREATE OR REPLACE FUNCTION hold_job(job_id uuid, holder uuid, held_ms int) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM checked_number('held_ms', held_ms, 0, 600000);
  UPDATE jobs j
     SET held_until = clock_timestamp() + held_ms * interval '1 ms'
   WHERE j.id = job_id
     AND j.holder = hold_job.holder
     AND j.state = 'running';
  RETURN FOUND;
END $$;

-- Ends a job that its holder cannot continue, and records why.
CREATE OR REPLACE FUNCTION fail_job(job_id uuid, holder uuid, error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE jobs j
     SET state = 'failed', error = left(fail_job.error, 2000), ended_at = clock_timestamp()
   WHERE j.id = job_id
     AND j.holder = fail_job.holder
     AND j.state = 'running';
  RETURN FOUND;
END $$;

-- Continues an interrupted job: of several callers, one gets true and holds it. False: another runner holds it, or it
-- has ended.
CREATE OR REPLACE FUNCTION resume_job(job_id uuid, holder uuid, held_ms int, actor text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_job jobs;
BEGIN
  PERFORM checked_number('held_ms', held_ms, 1, 600000);
  PERFORM assert_read_committed('resume_job');
  -- a second caller waits for the row, checks it again, and finds it held
  UPDATE jobs j
     SET holder = resume_job.holder, held_until = clock_timestamp() + held_ms * interval '1 ms'
   WHERE j.id = job_id
     AND j.state = 'running'
     AND NOT is_held(j.held_until, '10 minutes')
  RETURNING * INTO v_job;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM record_action(
    actor, 'resume_job',
    jsonb_build_object('job', job_id, 'action', v_job.action, 'deadBefore', v_job.dead_before) || v_job.filter,
    v_job.done);
  RETURN true;
END $$;

-- Cancels a job, whichever runner holds it; the batch in progress is its last. False if it had ended before.
CREATE OR REPLACE FUNCTION cancel_job(job_id uuid, actor text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_job jobs;
BEGIN
  UPDATE jobs j
     SET state = 'cancelled', ended_at = clock_timestamp()
   WHERE j.id = job_id
     AND j.state = 'running'
  RETURNING * INTO v_job;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM record_action(
    actor, 'cancel_job',
    jsonb_build_object('job', job_id, 'action', v_job.action, 'deadBefore', v_job.dead_before) || v_job.filter,
    v_job.done);
  RETURN true;
END $$;

-- Deletes jobs that ended, or were left interrupted, longer ago than p_older_than. The audit keeps what they did.
CREATE OR REPLACE FUNCTION prune_jobs(p_older_than interval DEFAULT '30 days', p_batch int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count int;
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  PERFORM checked_interval('p_older_than', p_older_than, '1 day', '100 years');
  DELETE FROM jobs
   WHERE id = ANY (ARRAY (
           SELECT j.id
             FROM jobs j
            WHERE coalesce(j.ended_at, j.held_until) < now() - p_older_than
            ORDER BY j.started_at
            LIMIT p_batch
              FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;
