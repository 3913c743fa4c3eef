// Generates the tables of codes and names: errors, attempts, SQLSTATEs, exit codes, checks of the doctor, environment
// variables, events and metrics. Names are read from the sources; their meanings are here. A name without a meaning
// fails, and so does a meaning without a name.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const root = new URL('../', import.meta.url).pathname;

const errorMeanings = {
  message_refused:
    'The message breaks a rule; `field` names the part. Nothing was inserted, and your transaction is still usable.',
  message_unrouted:
    "No route and no cursor wants the message, and the outbox has `unrouted: 'refuse'`; `topic` names it. Nothing was inserted, and your transaction is still usable.",
  no_transaction:
    "The handle is a pool, a client or an ORM's handle outside a transaction, or Waybill does not know it. Nothing was inserted.",
  sequence_gap:
    "A message came out of order to an inbox with `onGap: 'throw'`. Nothing was processed or recorded, and your transaction is still usable.",
  configuration_invalid:
    'An option, a route, a watch or a destination is invalid. It is found before anything starts; the text names the key, the value and what is allowed.',
  secret_sealed:
    'A sealed secret cannot be opened: `reason` is `unknown_key` (the key that sealed it is not among those given) or `damaged` (it was changed, or copied from elsewhere).',
  migration_refused:
    'A migration failed and was rolled back, the schema is newer than this version, running relays are too old for the new schema, or taking a migration back would lose messages.',
  schema_missing:
    'The database has no such schema: run `npx waybill migrate up` there, or give the right `schema`.',
  schema_outdated:
    'The schema is older than the relay, outbox or inbox that uses it: run `npx waybill migrate up` with its version first.',
  request_refused:
    'A receiver refused a webhook request: `status` is the status of the answer, the text says why. See [receiving webhooks](../guides/receiving.md).',
  rights_missing:
    'The login lacks a role: the text names the function and the role, such as `producer` for `enqueue`. See [roles](../operate/roles.md).',
  relay_busy:
    '`start()` or `drain()` was called on a relay that runs already. Stop it first; `catchUp()` waits until nothing is due.',
  relay_not_started:
    '`catchUp()` was called on a relay that was never started. Call `start()` first, or `drain()`.',
  relay_too_old:
    'The schema works with newer relays only. `start()` and `drain()` reject with it; a running relay stops, reports the event `relay_refused`, and has the error as `refusal`.',
  rows_hidden:
    'Row level security hides some rows from the login of `waybill audit verify`: use one with the role `auditor`, `control` or `owner`.',
  database_read_only:
    'A relay or a subscription was started on a database, such as a standby, that was still read-only after `startupWaitMs`.',
  deadline_exceeded:
    'A database call got no answer in time. Its connection was closed, and so were others without an answer. The relay repeats the call.',
  command_failed: 'A command of `waybill` could not do what was asked; its exit code says why.',
  test_kit:
    'The [test kit](../guides/testing.md) was used wrongly, a handler threw in `deliverAll()`, or its deliveries did not end.',
};

const attemptMeanings = {
  timeout: 'No answer within `timeoutMs`. The call was aborted through its signal.',
  thrown: 'The handler threw. `remote_code` has the `code` of the error, if there was one.',
  outcomes_missing: 'A batch destination returned fewer or more outcomes than it got messages.',
  outcome_invalid: 'The destination returned a value that is not an outcome.',
  stopped: 'The relay had to stop, and no answer came within its deadline.',
  http_status: 'A webhook answered with a status other than success; it is in `remote_code`.',
  answer_invalid:
    'The answer of a webhook is not valid HTTP, or does not belong to a request. `remote_code` has the details: see [webhooks](../guides/destinations/webhook.md#invalid-and-broken-responses).',
  endpoint_gone:
    'A webhook answered 410: the receiver wants no more messages. The destination is paused, and the message waits; no try is used.',
  target_refused:
    'The name of a webhook resolves to an address that is private or reserved. The text has the address.',
  token_failed:
    'The token server of OAuth 2 gave no access token. `remote_code` has its status, or the code of the network error: see [webhooks](../guides/destinations/webhook.md#authentication).',
  connection_failed:
    'The destination could not be reached, or the connection broke before the answer. `remote_code` has the code of the network error.',
  destination_full: 'The destination is out of memory or disk space.',
  destination_read_only:
    'The destination accepts no writes now: it is a replica, or its disk failed.',
  destination_unavailable:
    'The destination answered that it cannot work now: it is starting, its replicas are missing, or it has an internal error.',
  throttled: 'The destination asks for fewer requests.',
  not_authenticated: 'The credentials are missing, wrong or expired.',
  not_authorized: 'The credentials are valid, but do not allow this.',
  encryption_failed: 'The encryption key of the queue cannot be used.',
  wrong_server:
    'This server of a Redis Cluster does not hold the stream. Clusters are not supported.',
  stream_missing:
    'The stream does not exist and is not created automatically, or no stream accepts the subject.',
  queue_missing: 'The queue does not exist.',
  not_a_stream: 'The name belongs to something other than a stream.',
  name_incomplete:
    'The message lacks a field that the name of the target contains, such as `{key}`.',
  message_too_large: 'The message is larger than the destination accepts.',
  content_refused: 'The destination refuses this message; `remote_code` and the text say why.',
  redis_error: 'Redis returned a code that Waybill does not know; it is in `remote_code`.',
  nats_error: 'NATS returned a code that Waybill does not know; it is in `remote_code`.',
  rabbitmq_error: 'RabbitMQ returned a code that Waybill does not know; it is in `remote_code`.',
  sqs_error: 'SQS returned a code that Waybill does not know; it is in `remote_code`.',
  no_handler:
    'A destination made with `events.handler` has no function for this topic. It is tried again, because another relay may have one during a deployment.',
  guard_refused:
    "The destination's `guard` refused it; `remote_code` has the guard's code. The destination was not called.",
  guard_failed:
    'The `guard` threw, took too long or returned an invalid answer. The destination was not called; the next try asks the guard again.',
  broker_error: 'The broker returned a code that is not in this list; it is in `remote_code`.',
  broker_timeout: 'The replicas of a broker did not confirm the message in time.',
  topic_missing: 'The topic does not exist (yet), and is not created automatically.',
  topic_invalid: 'The broker does not allow the name of the topic.',
  leader_unavailable: 'The partition has no leader at the moment.',
  replicas_missing: 'The partition has fewer in-sync replicas than the topic asks for.',
  record_invalid: 'The broker refuses the record: a compacted topic needs a key.',
  not_supported: 'The broker is too old for this request.',
  producer_replaced:
    'The broker does not accept the producer id any more; the next call gets a new one.',
  access_refused: 'RabbitMQ refused the login or the right to publish; it has one code for both.',
  header_invalid:
    'The broker cannot carry the headers, because of a name, a line break or their length.',
  stream_mismatch: 'NATS: the subject belongs to a stream other than `stream`.',
  stream_sealed: 'NATS: the stream is sealed for good.',
  store_failed: 'NATS: the stream is full, or cannot store the message.',
  jetstream_disabled: 'NATS: the account has no JetStream.',
  subject_invalid: 'NATS: with the fields of this message, the subject is not valid.',
  unroutable: 'RabbitMQ: no queue is bound for the routing key; the broker sent the message back.',
  nacked: 'RabbitMQ: the broker could not accept the message, for example because a queue is full.',
  exchange_missing: 'RabbitMQ: the exchange does not exist.',
  vhost_refused: 'RabbitMQ: the virtual host does not exist, or accepts no more connections.',
  routing_key_invalid:
    'RabbitMQ: the exchange or the routing key is longer than the protocol allows.',
  zombie:
    'The lease expired, because its holder died or lost the database. The delivery was requeued (zombie requeue).',
  message_missing:
    'The message of the delivery does not exist any more. The delivery becomes a dead letter at once and can only be discarded.',
  too_large_to_read:
    'Payload and headers have more than 68,157,440 bytes as text. No producer can enqueue such a message: the owner of the schema wrote the row. It becomes a dead letter without being read.',
  nack: 'A worker called `nack` and gave no code of its own.',
  max_attempts_lowered:
    'The `maxAttempts` of the destination was lowered to the tries of this delivery, or below.',
  expired:
    'The message is older than its endpoint allows (`expireAfterMs`). It was not sent, and its delivery has ended.',
  cancelled: 'An operator cancelled it (`cancel`, `discard_deliveries`).',
  moved: 'An operator moved it to another destination (`move_deliveries`).',
};

const stateMeanings = {
  '0A000':
    'The relay is too old for this schema: upgrade it ([rolling upgrades](../operate/upgrade.md#which-versions-work-together)).',
  22023:
    'An argument is invalid: a message that breaks a rule, a number or an interval out of range. The text has its name, its value and what is allowed.',
  22004: 'An argument is null that must not be (`claim` without a token).',
  23505:
    'The name of a token or an endpoint is taken. The name of a removed endpoint stays taken for at least 30 days.',
  25001:
    '`settle`, `ack`, `nack`, `mark_delivered` or a function that seals was called in REPEATABLE READ or SERIALIZABLE. Call it in READ COMMITTED.',
  40001:
    'A dedupe key, or a message in the inbox, expired while it was being compared; or a table was watched after the transaction had begun. Run the transaction again.',
  54000:
    'The tenant has reached the limit of endpoints, `endpoints.maxPerTenant`: remove one first, or raise the limit. Or a session that is limited to a tenant sends tests, resends or replays too often: wait.',
  42501:
    'The role may not do this: the function is for other roles, or a watch needs the TRIGGER right on its table. The hint says what to grant; see [roles](../operate/roles.md).',
  55000:
    'A watched table cannot be written like this (a TRUNCATE that is not reported, a watch that lost its columns), a cursor cannot be read here (a standby, a restored dump), or `enqueue` refuses a message without a route because of `unrouted`. The text says what to do.',
  55006:
    'The job that `start_job` should undo is being undone by another job. Wait for that job, resume it, or stop it.',
  '55P03':
    'A lock was not available in time, or `remove_partition` found its partition in use again, not sealed completely, or needed by a transaction from before its copy. Try again later.',
  P0001:
    'Attempts, operator actions and seals are append-only; messages, deliveries, leases and dead letters cannot be truncated. This holds for all roles, including the owner and superusers.',
  P0002:
    'There is no destination, cursor, watch or endpoint of this name. The hint lists the existing ones.',
};

const exitMeanings = {
  ok: 'done',
  error: 'an error, such as a database that cannot be reached',
  usage: 'the command line or the configuration is invalid',
  notFound: 'nothing matches, or the name does not exist',
  refused: 'refused: the command needs `--yes`, or would lose data',
  limitReached:
    '`drain`: a limit was reached before the queue was empty; `replay`, `dead-letters` and `keys`: stopped before the end',
  breakingChange: '`events check` only: an event changed in a way that breaks consumers',
  tampered: '`audit verify` only: sealed rows were changed',
  tooOld:
    '`start` and `drain`: the schema works with newer relays only, from the start or since a migration',
  wouldChange: '`apply --dry-run` only: something would change',
  findings: '`doctor`: a check has a warning or an error; `rollout report`: the two systems differ',
};

const environmentMeanings = {
  DATABASE_URL: 'the address of the database',
  DATABASE_DIRECT_URL:
    'a direct address for LISTEN, retention and migrations, when `DATABASE_URL` leads through a pooler',
  DATABASE_REPLICA_URL:
    'a hot standby for requests that only read: see [replicas](../guides/replicas.md); or `DATABASE_REPLICA_URL_FILE`',
  DATABASE_SERVER_URL:
    'the database for the page and the API, if the login of the relay has fewer rights: see [roles](../operate/roles.md); or `DATABASE_SERVER_URL_FILE`',
  PGHOST: 'with the other `PG…` variables, instead of `DATABASE_URL`',
  WAYBILL_SCHEMA: 'the schema (default `outbox`); `--schema` overrides it',
  WAYBILL_SECRET_KEY:
    'encrypts the secrets of endpoints: 32 bytes in base64, or several separated by commas; the first encrypts, and all decrypt; or `WAYBILL_SECRET_KEY_FILE`',
  WAYBILL_ENDPOINT_SECRET:
    'for `waybill endpoints add` and `rotate`: a secret that the receiver has chosen; or `WAYBILL_ENDPOINT_SECRET_FILE`',
  WAYBILL_LOG_LEVEL: '`debug`, `info` or `warn`: the lowest level that is logged to standard error',
  WAYBILL_ENV_FILE:
    'for `waybill` commands: the file to read variables from instead of `.env`; empty: none. Variables that are set count more',
  WAYBILL_WAKE_URL:
    'for `outbox.nudge()`: the address of a relay that [may sleep](../guides/sleeping-database.md), such as `https://relay.example.com/api/wake`',
  WAYBILL_WAKE_TOKEN: 'a token of that relay with the scope `operate`',
  NO_COLOR: 'Any value: `waybill tail` uses no colours, also on a terminal.',
};

const eventMeanings = {
  relay_started: 'The relay listens, claims and delivers.',
  relay_stopped: 'The relay has settled or released everything that it held.',
  relay_asleep:
    'The relay has nothing to do and has closed its connections (`relay.sleep`). It wakes after `forMs` at the latest.',
  relay_refused:
    'The schema was migrated and works with newer relays only: this relay releases its deliveries and stops. Upgrade it.',
  database_unavailable:
    'The relay cannot start yet, because its database is down or read-only, or a lock is held. It tries again after `againMs`, until `relay.startupWaitMs` has passed.',
  database_available: 'The database is available after `waitedMs`, and the relay starts.',
  shard_unavailable:
    'The database of a shard is not available; the relay tries again after `againMs`. Other shards are not affected.',
  other_configuration:
    'Another living relay of the same `application` runs with other destinations or routes. This is normal during a deploy. The routes of all of them apply; where they differ on the settings or the mode of a destination, the newest relay counts. If they are different applications, set `application` to a name of its own in each configuration: without it, the name is `default`.',
  claimed: 'One batch was claimed.',
  settled: 'The outcomes of one batch were recorded.',
  delivery_failed: 'One delivery failed; `outcome` says how.',
  lease_lost:
    'The lease expired, and another relay may have these messages. They can arrive twice, with the same id. `noticedBy` says which call noticed it: `settle`, or `extension`, when some of them may still be in flight.',
  leases_released: 'Messages of a claim whose answer was lost were released; no try was used.',
  misdated_released:
    'The due times of deliveries were corrected, because the clock of the database had run ahead: find out why it was wrong.',
  zombies_requeued:
    'The reaper ended expired leases: their deliveries were requeued, or became dead letters.',
  woken: 'A wake-up notification for one of the destinations arrived.',
  listen_unavailable: 'LISTEN does not work; the relay uses the fallback poll meanwhile.',
  trouble:
    'Something failed and will be tried again: `what` names it, `error` has the text, and `code` the code of the error, if it has one.',
  destination_hung: 'All calls that the concurrency allows have ignored their timeout.',
  destination_paused:
    'The destination was paused because of its answer, which is in `failure`. Deliveries wait until an operator resumes it.',
  breaker_opened:
    'The circuit breaker of a destination opened at this relay; `because` and `failures` say why, `forMs` for how long.',
  breaker_closed: 'A probe succeeded, and deliveries continue.',
  stream_taken: 'This reader has taken the lease of the cursor.',
  stream_lost:
    'Another reader has the lease of the cursor, or the cursor was reset. Messages in flight may be read twice.',
  stream_read: 'One batch of the log was processed.',
  stream_failed: 'A message of the log could not be processed; `outcome` says how.',
  stream_parked: 'A message of the log became a dead letter, and reading continues.',
  partitions_made: 'Partitions were created ahead of time.',
  partition_alarm: 'Partitions exist for fewer than 30 days ahead, and creating more failed.',
  pruned:
    'Retention removed old data; `thinned`: how many partitions keep only what is still needed.',
  retention_floor:
    'The configured retention is shorter than a [retention floor](maintenance.md#retention-floors) of the database: the floor counts. `floors` has a sentence for each.',
  maintenance_left:
    'The login of this relay has not the role `maintenance`: it removes nothing, and leaves retention to others. Reported once.',
  replica_used: 'The replica answers requests that only read, from now on.',
  replica_unused:
    'The primary answers requests that only read, because the replica cannot be used; `reason` says why.',
  serving:
    'The HTTP port listens at `url`. `page` is the address of the page, and `login` says how to log in.',
};

/** @returns {Promise<Record<string, string>>} */
/** @typedef {import('./docs.mjs').Load} Load */

/** @param {Load} load */
export async function codeTables(load) {
  return {
    errors: errorTable(),
    attemptCodes: attemptTable(),
    kafkaErrors: await kafkaTable(load),
    sqlStates: stateTable(),
    exitCodes: await exitTable(load),
    doctorChecks: await doctorTable(load),
    environment: environmentTable(),
    events: await eventTable(load),
    metrics: await metricTable(load),
  };
}

function errorTable() {
  const classes = sources('src', '.ts').flatMap((text) =>
    [...text.matchAll(/export class (\w+) extends WaybillError \{.*?super\(\s*'(\w+)'/gs)].map(
      ([, name, code]) => ({ name, code }),
    ),
  );
  const codes = classes.map(({ code }) => code);
  assertSame('error codes', codes, errorMeanings);
  return table(
    ['code', 'class', 'meaning'],
    classes.map(({ name, code }) => [
      `\`${code}\``,
      `\`${name}\``,
      errorMeanings[/** @type {keyof errorMeanings} */ (code)],
    ]),
  );
}

function attemptTable() {
  const fromCode = [
    'src/core',
    'src/relay',
    'src/destinations',
    'src/producer/events',
    'src/features',
  ]
    .flatMap((folder) => sources(folder, '.ts'))
    .flatMap((text) =>
      [
        ...text.matchAll(/\b(?:retry|reject|pause)\(\{\s*code: '(\w+)'/g),
        // tables that map codes of a destination to outcomes
        ...text.matchAll(/\['(?:retry|reject|pause)', '(\w+)'\]/g),
        ...text.matchAll(/\bkind: '(?:retry|reject|pause)', code: '(\w+)'/g),
        // the same, over several lines
        ...text.matchAll(/\bkind: '(?:retry|reject|pause|discard)',\s*code: '(\w+)'/g),
      ].map(([, code]) => code),
    );
  const sql = sources('sql/functions', '.sql').join('\n');
  const fromSql = [
    ...sql.matchAll(/'discarded', clock_timestamp\(\), '(\w+)'/g),
    ...sql.matchAll(/'exhausted', '(\w+)'/g),
    ...sql.matchAll(/array_fill\('(\w+)'::text/g),
    ...sql.matchAll(/coalesce\(code, '(\w+)'\)/g),
  ].map(([, code]) => code);
  const codes = [...new Set([...fromCode, ...fromSql])];
  assertSame('codes of attempts', codes, attemptMeanings);
  return table(
    ['error_code', 'meaning'],
    Object.entries(attemptMeanings).map(([code, meaning]) => [`\`${code}\``, meaning]),
  );
}

/** @param {Load} load */
async function kafkaTable(load) {
  /** @type {{ errorCodes: Record<string, { name: string, kind: string, code: string }> }} */
  const { errorCodes } = await load('destinations/kafka/error-codes');
  return table(
    ['code of the broker', 'outcome', 'error_code'],
    Object.entries(errorCodes)
      .toSorted(([one], [other]) => Number(one) - Number(other))
      .map(([number, { name, kind, code }]) => [`\`${name}\` (${number})`, kind, `\`${code}\``]),
  );
}

function stateTable() {
  const sql = sources('sql/functions', '.sql').join('\n');
  const codes = [...new Set([...sql.matchAll(/ERRCODE = '(\w{5})'/g)].map(([, code]) => code))];
  assertSame('SQLSTATEs', codes, stateMeanings);
  return table(
    ['SQLSTATE', 'meaning'],
    Object.entries(stateMeanings).map(([code, meaning]) => [`\`${code}\``, meaning]),
  );
}

/** @param {Load} load */
async function exitTable(load) {
  /** @type {{ exitCode: Record<string, number> }} */
  const { exitCode } = await load('cli/output');
  assertSame('exit codes', Object.keys(exitCode), exitMeanings);
  const rows = Object.entries(exitCode).map(([name, code]) => [
    code,
    exitMeanings[/** @type {keyof exitMeanings} */ (name)],
  ]);
  return table(['exit code', 'meaning'], rows);
}

/** @param {Load} load */
async function doctorTable(load) {
  /** @type {{ checks: { code: string, title: string, finds: string }[] }} */
  const { checks } = await load('doctor/doctor');
  return table(
    ['code', 'looks whether', 'finds'],
    checks.map(({ code, title, finds }) => [`\`${code}\``, title, finds]),
  );
}

function environmentTable() {
  const names = sources('src', '.ts').flatMap((text) =>
    [
      ...text.matchAll(
        /(?:process\.|environment\?\.)env\['(\w+)'\]|secretFromEnvironment\('(\w+)'\)|ariable = '(WAYBILL_\w+)'/g,
      ),
    ].map(([, read, secret, named]) => read ?? secret ?? named),
  );
  assertSame('environment variables', [...new Set(names)], environmentMeanings);
  return table(
    ['variable', 'meaning'],
    Object.entries(environmentMeanings).map(([name, meaning]) => [`\`${name}\``, meaning]),
  );
}

/** @param {Load} load */
async function eventTable(load) {
  const text = readFileSync(path.join(root, 'src/telemetry/events.ts'), 'utf8');
  const union = text.slice(
    text.indexOf('export type CoreEvent'),
    text.indexOf('export interface FeatureEvents'),
  );
  const ofCore = [...union.matchAll(/name: '(\w+)'/g)].map(([, name]) => name);
  assertSame('events', ofCore, eventMeanings);
  const { features } = await load('features/all');
  /** @type {Record<string, string>} */
  const meanings = { ...eventMeanings };
  for (const { events = {} } of features)
    for (const [name, { means }] of Object.entries(events)) meanings[name] = means;
  const names = Object.keys(meanings);
  /** @type {{ eventLevel: (event: { name: string }) => string }} */
  const { eventLevel } = await load('features/event-level');
  const metrics = await readMetrics(load);
  return table(
    ['event', 'level', 'meaning', 'counted in'],
    names.map((name) => [
      `\`${name}\``,
      eventLevel({ name }),
      meanings[name],
      metrics
        .filter(([, { events }]) => events.includes(name))
        .map(([metric]) => `\`${metric}\``)
        .join(', ') || '–',
    ]),
  );
}

/** @param {Load} load @returns {Promise<[string, { type: string, labels: string[], help: string, events: string[] }][]>} */
async function readMetrics(load) {
  /** @type {{ metricCatalogue: Record<string, { type: string, labels: string[], help: string, events: string[] }> }} */
  const { metricCatalogue } = await load('telemetry/metric-catalogue');
  return Object.entries(metricCatalogue);
}

/** @param {Load} load */
async function metricTable(load) {
  return table(
    ['metric', 'type', 'labels', 'meaning'],
    (await readMetrics(load)).map(([name, { type, labels, help }]) => [
      `\`${name}\``,
      type,
      labels.map((label) => `\`${label}\``).join(', ') || '–',
      help,
    ]),
  );
}

/** @param {string} folder @param {string} extension */
function sources(folder, extension) {
  return readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(extension))
    .toSorted()
    .map((name) => readFileSync(path.join(root, folder, name), 'utf8'));
}

/** @param {string} what @param {string[]} found @param {object} meanings */
function assertSame(what, found, meanings) {
  const known = Object.keys(meanings);
  const unexplained = found.filter((name) => !known.includes(name));
  const gone = known.filter((name) => !found.includes(name));
  if (unexplained.length > 0)
    throw new Error(
      `${what} without a meaning in scripts/docs-codes.mjs: ${unexplained.join(', ')}`,
    );
  if (gone.length > 0)
    throw new Error(`${what} that the sources no longer have: ${gone.join(', ')}`);
}

/** @param {string[]} head @param {string[][]} rows */
function table(head, rows) {
  return [head, head.map(() => '---'), ...rows]
    .map((cells) => `| ${cells.join(' | ')} |`)
    .join('\n')
    .replace(/\| --- /g, '|---')
    .replace('--- |', '---|');
}
