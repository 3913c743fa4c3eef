-- Forgets the jobs; what they did stays done, and stays in the audit.
DROP FUNCTION IF EXISTS start_job, job_step, hold_job, fail_job, resume_job, cancel_job, prune_jobs;
DROP TABLE jobs;
