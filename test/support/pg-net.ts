// Stand-ins for extensions that Debian lacks: pg_net and the vault of Supabase, with the functions, tables and columns
// that the recipe uses, and pg_cron where no server has it. As in the real pg_net, a request is a row that a separate
// process sends after the commit, and the response becomes a row; here the test sends it.

import pg from 'pg';
import { onTestFinished } from 'vitest';

const netAndVault = `
  CREATE SCHEMA net;
  CREATE TABLE net.http_request_queue (id bigint GENERATED ALWAYS AS IDENTITY, url text, headers jsonb, body jsonb, timeout_milliseconds int);
  CREATE TABLE net._http_response (id bigint, status_code int, content text, error_msg text, created timestamptz DEFAULT now());
  CREATE FUNCTION net.http_post(url text, body jsonb DEFAULT '{}', params jsonb DEFAULT '{}',
    headers jsonb DEFAULT '{"Content-Type": "application/json"}', timeout_milliseconds int DEFAULT 5000) RETURNS bigint
  LANGUAGE sql AS $$
    SELECT pg_notify('net_stand_in', '');
    INSERT INTO net.http_request_queue (url, headers, body, timeout_milliseconds) VALUES (url, headers, body, timeout_milliseconds) RETURNING id
  $$;
  CREATE SCHEMA vault;
  CREATE TABLE vault.secrets (id uuid DEFAULT gen_random_uuid(), name text UNIQUE, secret text);
  CREATE VIEW vault.decrypted_secrets AS SELECT id, name, secret AS decrypted_secret FROM vault.secrets;
  CREATE FUNCTION vault.create_secret(new_secret text, new_name text DEFAULT NULL, new_description text DEFAULT '') RETURNS uuid
  LANGUAGE sql AS 'INSERT INTO vault.secrets (name, secret) VALUES (new_name, new_secret) RETURNING id'`;

const cron = `
  CREATE SCHEMA cron;
  CREATE TABLE cron.job (jobid bigint GENERATED ALWAYS AS IDENTITY, schedule text, command text, jobname text UNIQUE);
  CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint
  LANGUAGE sql AS 'INSERT INTO cron.job (jobname, schedule, command) VALUES (job_name, schedule, command) RETURNING jobid';
  CREATE FUNCTION cron.unschedule(job_name text) RETURNS boolean
  LANGUAGE sql AS 'DELETE FROM cron.job WHERE jobname = job_name RETURNING true'`;

/** Creates the stand-ins in the database, and sends queued requests until the test ends. */
export async function startPgNet(url: string, kinds: { cron: boolean }): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  await client.query(kinds.cron ? `${netAndVault};${cron}` : netAndVault);
  let sending: Promise<void> = Promise.resolve();
  client.on('notification', () => {
    sending = sending.then(() => sendQueued(client)).catch(() => undefined);
  });
  await client.query('LISTEN net_stand_in');
  onTestFinished(async () => {
    await sending;
    await client.end();
  });
}

type Queued = { id: string; url: string; headers: Record<string, string>; body: unknown };

async function sendQueued(client: pg.Client): Promise<void> {
  const { rows } = await client.query<Queued>('DELETE FROM net.http_request_queue RETURNING *');
  // all at once, as the real one does
  await Promise.all(
    rows.map(async ({ id, url, headers, body }) => {
      const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
      await client.query(
        'INSERT INTO net._http_response (id, status_code, content) VALUES ($1, $2, $3)',
        [id, answer.status, await answer.text()],
      );
    }),
  );
}
