-- Jobs: retry, skip or discard all dead letters that match a filter and had died when the job was planned; or restore
-- letters that were discarded.
--
-- A job is a row in jobs. Each step changes one bounded batch in one transaction and counts it there, so done is exact
-- wherever the runner dies. Dead letters that were handled are gone, so another runner can continue, and none is
-- handled twice. One runner at a time has the hold 'job ID' (holds.sql), whose token it gets when it starts or resumes
-- the job.
--
-- A batch does not lock the row of its job until its end, so a cancel does not wait for it. Changes of dead letters are
-- serialized (lock_dead_letters). Otherwise a job could find no letters while another holds them, and end too early.

-- Starts a job and holds it for the caller; job_step does the work. dead_before: only letters that died before this
-- time; null: before now. The letters are counted, up to 100,000 (planned). tenant_id filters the letters, as the other
-- fields do. limited_to is the tenant to which the caller is limited; tenant_id must be the same. To restore letters,
-- give ids, or the job that has discarded them (undone_job); destination and tenant_id filter these too. While a
-- job that undoes it has not ended, a second undo is refused.
CREATE OR REPLACE FUNCTION start_job(
  action       text,
  dead_before  timestamptz,
  holder       uuid,
  held_ms      int,
  destination  text DEFAULT NULL,
  ids          uuid[] DEFAULT NULL,
  error_code   text DEFAULT NULL,
  topic        text DEFAULT NULL,
  tenant_id    text DEFAULT NULL,
  limited_to   text DEFAULT NULL,
  actor        text DEFAULT NULL,
  causes       text[] DEFAULT NULL,
  destinations text[] DEFAULT NULL,
  undone_job   uuid DEFAULT NULL,
  OUT job_id   uuid,
  OUT token    bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  -- a letter may have died in this millisecond
  v_before  timestamptz := coalesce(dead_before, clock_timestamp() + interval '1 ms');
  v_undone  jobs;
  v_undoing jobs;
BEGIN
  PERFORM checked_number('held_ms', held_ms, 1, 600000);
  IF coalesce(action NOT IN ('retry', 'skip', 'discard', 'restore'), true) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('action is %s: give retry, skip, discard or restore', coalesce(action, 'null'));
  END IF;
  IF action = 'restore' AND (undone_job IS NULL) = (ids IS NULL) THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'action is restore: give either ids or undone_job';
  END IF;
  IF action <> 'restore' AND undone_job IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('undone_job is %s, and action is %s: only restore undoes a job', undone_job, action);
  END IF;
  IF undone_job IS NOT NULL THEN
    -- of two that undo a job at once, one waits, and sees the other's
    SELECT * INTO v_undone FROM jobs j WHERE j.id = undone_job FOR NO KEY UPDATE;
    IF v_undone.id IS NULL OR v_undone.tenant_id IS DISTINCT FROM coalesce(limited_to, v_undone.tenant_id) THEN
      RAISE EXCEPTION USING ERRCODE = 'P0002',
        MESSAGE = format('there is no job %s: the audit shows what old jobs did', undone_job);
    END IF;
    IF v_undone.action <> 'discard' OR v_undone.state = 'running' THEN
      RAISE EXCEPTION USING ERRCODE = '22023',
        MESSAGE = format('undone_job is %s, %s', undone_job,
                         CASE
                           WHEN v_undone.action <> 'discard' THEN
                             format('a %s: only a discard can be undone', v_undone.action)
                           ELSE 'which has not ended: cancel it first'
                         END);
    END IF;
    SELECT * INTO v_undoing FROM undoing_job(undone_job);
    IF v_undoing.id IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '55006',
        MESSAGE = format('the job %s is being undone by the job %s: wait for it, or resume it if it is interrupted',
                         undone_job, v_undoing.id);
    END IF;
  END IF;
  IF limited_to <> tenant_id OR (limited_to IS NOT NULL AND tenant_id IS NULL) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('tenant_id is %s, and the caller is limited to %s: give that tenant',
                       coalesce(tenant_id, 'null'), limited_to);
  END IF;
  INSERT INTO jobs AS j (action, filter, dead_before, tenant_id, actor, planned)
  VALUES (start_job.action,
          jsonb_strip_nulls(
            dead_letter_subject(destination, ids, error_code, topic, start_job.tenant_id, NULL, causes, destinations)
            || jsonb_build_object('job', undone_job)),
          v_before, limited_to, coalesce(start_job.actor, session_user),
          CASE
            WHEN action = 'restore' THEN count_discarded_letters(ids, destination, undone_job, start_job.tenant_id)
            ELSE count_dead_letters(destination, ids, error_code, topic, start_job.tenant_id, v_before,
                                    causes => causes, destinations => destinations)
          END)
  RETURNING j.id INTO job_id;
  token := (SELECT h.token FROM take_hold('job ' || job_id, holder, held_ms * interval '1 ms') h);
END $$;

-- The job that restores what this job has discarded, and has not ended.
CREATE OR REPLACE FUNCTION undoing_job(p_job_id uuid) RETURNS jobs
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT j.*
    FROM jobs j
   WHERE j.action = 'restore'
     AND j.state = 'running'
     AND j.filter ->> 'job' = p_job_id::text
   LIMIT 1
$$;

-- The texts of a JSON array; null for null.
CREATE OR REPLACE FUNCTION texts_in(p_array jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE WHEN p_array IS NOT NULL THEN ARRAY (SELECT jsonb_array_elements_text(p_array)) END
$$;

-- Runs one step of a job for its holder: changes at most max_count letters, and renews the hold. Returns how many it
-- changed, and the state. Call it until goes_on is false: the job has ended, or another runner holds it.
CREATE OR REPLACE FUNCTION job_step(
  job_id      uuid,
  token       bigint,
  max_count   int DEFAULT 1000,
  OUT changed int,
  OUT state   text,
  OUT goes_on boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_job          jobs;
  v_ids          uuid[];
  v_causes       text[];
  v_destinations text[];
  -- the letters that this step has looked at; a restore leaves some of them out
  v_tried        int;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 10000);
  PERFORM assert_read_committed('job_step');
  SELECT * INTO v_job FROM jobs j WHERE j.id = job_id;
  changed := 0;
  state := v_job.state;
  -- no row: maintenance has removed the job, 30 days after it ended or was left interrupted
  goes_on := coalesce(v_job.state = 'running', false) AND has_hold('job ' || job_id, token);
  IF NOT goes_on THEN RETURN; END IF;

  v_ids := texts_in(v_job.filter -> 'ids')::uuid[];
  v_causes := texts_in(v_job.filter -> 'causes');
  v_destinations := texts_in(v_job.filter -> 'destinations');
  IF v_job.action = 'restore' THEN
    SELECT s.tried, s.restored
      INTO v_tried, changed
      FROM restore_some_letters(v_ids, v_job.filter ->> 'destination', (v_job.filter ->> 'job')::uuid,
                                v_job.filter ->> 'tenantId', max_count, v_job.actor) s;
  ELSE
    changed := CASE v_job.action
      WHEN 'retry' THEN
        retry_dead_letters(v_job.filter ->> 'destination', v_ids, v_job.filter ->> 'errorCode',
                           v_job.filter ->> 'topic', v_job.filter ->> 'tenantId', v_job.dead_before, max_count,
                           v_job.actor, v_causes, v_destinations, v_job.id)
      WHEN 'skip' THEN
        skip_dead_letters(v_job.filter ->> 'destination', v_ids, v_job.filter ->> 'errorCode',
                          v_job.filter ->> 'topic', v_job.filter ->> 'tenantId', v_job.dead_before, max_count,
                          v_job.actor, v_causes, v_destinations)
      ELSE
        discard_dead_letters(v_job.filter ->> 'destination', v_ids, v_job.filter ->> 'errorCode',
                             v_job.filter ->> 'topic', v_job.filter ->> 'tenantId', v_job.dead_before, max_count,
                             v_job.actor, NULL, v_causes, v_destinations, v_job.id)
    END;
    v_tried := changed;
  END IF;

  -- the job may have been cancelled or taken over meanwhile: the batch counts, and the rest stays as it is
  UPDATE jobs j
     SET done = j.done + changed,
         state = CASE WHEN j.state = 'running' AND v_tried = 0 THEN 'done' ELSE j.state END,
         ended_at = CASE WHEN j.state = 'running' AND v_tried = 0 THEN clock_timestamp() ELSE j.ended_at END,
         moved_at = clock_timestamp()
   WHERE j.id = job_id
  RETURNING j.state INTO state;
  goes_on := state = 'running' AND renew_hold('job ' || job_id, token);
END $$;

-- Renews the hold of a job, between its steps. False: another runner holds it.
CREATE OR REPLACE FUNCTION renew_job(job_id uuid, token bigint) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT renew_hold('job ' || job_id, token)
$$;

-- Releases the hold of a job, so that another runner can continue it at once. False: another runner holds it.
CREATE OR REPLACE FUNCTION release_job(job_id uuid, token bigint) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT release_hold('job ' || job_id, token)
$$;

-- Ends a job that its holder cannot continue, and records why.
CREATE OR REPLACE FUNCTION fail_job(job_id uuid, token bigint, error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE jobs j
     SET state = 'failed', error = left(fail_job.error, 2000), ended_at = clock_timestamp()
   WHERE j.id = job_id
     AND j.state = 'running'
     AND has_hold('job ' || job_id, token);
  RETURN FOUND;
END $$;

-- Continues an interrupted job: of several callers, one gets the token and holds it. Null: another runner holds it, or
-- it has ended.
CREATE OR REPLACE FUNCTION resume_job(job_id uuid, holder uuid, held_ms int, actor text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_job   jobs;
  v_token bigint;
BEGIN
  PERFORM checked_number('held_ms', held_ms, 1, 600000);
  PERFORM assert_read_committed('resume_job');
  SELECT * INTO v_job FROM jobs j WHERE j.id = job_id AND j.state = 'running' FOR UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  v_token := (SELECT h.token FROM take_hold('job ' || job_id, holder, held_ms * interval '1 ms') h);
  IF v_token IS NULL THEN RETURN NULL; END IF;
  PERFORM record_action(
    actor, 'resume_job',
    jsonb_build_object('job', job_id, 'action', v_job.action, 'deadBefore', v_job.dead_before) || v_job.filter,
    v_job.done);
  RETURN v_token;
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
  v_ids uuid[];
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  PERFORM checked_interval('p_older_than', p_older_than, '1 day', '100 years');
  v_ids := ARRAY (
    SELECT j.id
      FROM jobs j
     WHERE coalesce(j.ended_at, j.moved_at) < now() - p_older_than
     ORDER BY j.started_at
     LIMIT p_batch
       FOR UPDATE SKIP LOCKED);
  DELETE FROM jobs WHERE id = ANY (v_ids);
  DELETE FROM holds WHERE name = ANY (ARRAY (SELECT 'job ' || i FROM unnest(v_ids) i));
  RETURN cardinality(v_ids);
END $$;
