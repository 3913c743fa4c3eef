// The tables of codes and names that users meet: errors, endings of attempts, SQLSTATEs, exit codes, checks of the
// doctor, the environment and the relay's events. The names are read from the sources, the meanings stand here; a name
// without a meaning and a meaning without a name both fail, so neither outlives the other.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { createJiti } from 'jiti';

const root = new URL('../', import.meta.url).pathname;
const jiti = createJiti(import.meta.url);

const errorMeanings = {
  message_refused:
    'The message breaks a rule; `field` names which part. Nothing was inserted, and your transaction is still usable.',
  no_transaction:
    "The handle is a pool, a client or an ORM's handle outside a transaction, or nothing that Waybill knows. Nothing was inserted.",
  sequence_gap:
    "A message came out of order to an inbox with `onGap: 'throw'`. Nothing was processed or recorded, and your transaction is still usable.",
  configuration_invalid:
    'An option, a route, a watch or a destination cannot be used. Found before anything starts; the text names the key, the value and what is allowed.',
  secret_sealed:
    'A sealed secret cannot be opened: `reason` is `unknown_key` (the key that sealed it is not among those given) or `damaged` (it was changed, or copied from elsewhere).',
  migration_refused:
    'A migration failed and was rolled back, the schema is newer than this version, relays run that are too old for what would be made, or a step back would lose messages.',
  schema_outdated:
    'The schema is older than the relay that was to be started: run `waybill migrate up` with its version first.',
  relay_too_old:
    'The schema works with newer relays only. `start()` and `drain()` reject with it; a relay that runs already stops by itself, tells it (`relay_refused`), and has it as `refusal`.',
  rows_hidden:
    '`waybill audit verify` was run with a login that row level security lets see some rows only: use one with the role `auditor`, `control` or `owner`.',
  deadline_exceeded:
    'A database call did not answer in time; its connection was destroyed. The relay repeats it.',
  command_failed: 'A command of `waybill` could not do what was asked; its exit code says why.',
};

const attemptMeanings = {
  timeout: 'No answer within `timeoutMs`. The call was aborted through its signal.',
  thrown: 'The handler threw. `remote_code` has the `code` of the error, if there was one.',
  outcomes_missing: 'A batch destination gave another number of outcomes than it got messages.',
  outcome_invalid: 'The destination answered something that is not an outcome.',
  stopped: 'The relay had to stop, and no answer came within its deadline.',
  http_status: 'A webhook answered with a status that is no success. `remote_code` has the status.',
  answer_invalid:
    'What came back from a webhook is not HTTP, or no answer to a request. `remote_code` says in which way: see [webhooks](destinations/webhook.md#what-an-answer-means).',
  endpoint_gone:
    'A webhook answered 410: its receiver wants no more. The destination is paused, and the message waits; no try is spent.',
  target_refused:
    'The name of a webhook leads to an address that is not public, or never used. The text has the address.',
  connection_failed:
    'The other side could not be reached, or the connection broke before its answer came. `remote_code` has the code of the network error.',
  destination_full: 'The other side has no room, in memory or on disk.',
  destination_read_only:
    'The other side takes no writes now, as a replica, or because its disk failed.',
  destination_unavailable:
    'The other side answered that it cannot work now: it starts, lacks its replicas, or has an error of its own.',
  throttled: 'The other side wants fewer requests.',
  not_authenticated: 'The credentials are missing, wrong or expired.',
  not_authorized: 'The credentials are right, and do not allow this.',
  encryption_failed: 'The key that the queue is encrypted with cannot be used.',
  wrong_server:
    'This server of a Redis Cluster does not hold the stream. Clusters are not supported.',
  stream_missing:
    'The stream does not exist and is not to be made, or no stream takes the subject.',
  queue_missing: 'The queue does not exist.',
  not_a_stream: 'Something else than a stream has the name.',
  name_incomplete:
    'The message lacks a field that the name of its place is made of, such as `{key}`.',
  message_too_large: 'The other side takes no message as large as this.',
  content_refused: 'The other side refuses this message; `remote_code` and the text say why.',
  redis_error: 'Redis gave a code that Waybill does not know; it is in `remote_code`.',
  nats_error: 'NATS gave a code that Waybill does not know; it is in `remote_code`.',
  rabbitmq_error: 'RabbitMQ gave a code that Waybill does not know; it is in `remote_code`.',
  sqs_error: 'SQS gave a code that Waybill does not know; it is in `remote_code`.',
  no_handler:
    'A destination made with `events.handler` has no function for this topic; it is tried again, as during a deployment another relay may have one.',
  guard_refused:
    "The destination's `guard` refused it; `remote_code` has the guard's code. The destination was not called.",
  guard_failed:
    'The `guard` threw, took too long or answered nonsense. The destination was not called, and the guard is asked again with the next try.',
  broker_error: 'The broker gave a code that has no other name here; `remote_code` has it.',
  broker_timeout: 'The replicas of a broker did not take the message in time.',
  topic_missing: 'The topic does not exist (yet), and was not to be created.',
  topic_invalid: 'The topic has a name that the broker does not allow.',
  leader_unavailable: 'The partition has no leader at the moment.',
  replicas_missing: 'The partition has fewer in-sync replicas than the topic asks for.',
  record_invalid: 'The broker refuses the record: without a key, for a compacted topic.',
  not_supported: 'The broker is too old for what is asked of it.',
  producer_replaced:
    'The broker does not take the producer id any more; the next call gets another one.',
  access_refused:
    'RabbitMQ refused the login, or the right to publish there; it has one code for both.',
  header_invalid: 'The broker cannot carry the headers: a name, a line break, or their length.',
  stream_mismatch: 'NATS: another stream than `stream` takes the subject.',
  stream_sealed: 'NATS: the stream is sealed for good.',
  store_failed: 'NATS: the stream is full, or cannot store.',
  jetstream_disabled: 'NATS: the account has no JetStream.',
  subject_invalid: 'NATS: with the fields of this message it is not a subject to publish to.',
  unroutable: 'RabbitMQ: no queue is bound for the routing key; the broker sent the message back.',
  nacked: 'RabbitMQ: the broker could not take it, such as a queue that is full.',
  exchange_missing: 'RabbitMQ: the exchange does not exist.',
  vhost_refused: 'RabbitMQ: the virtual host does not exist, or takes no further connection.',
  routing_key_invalid: 'RabbitMQ: exchange or routing key are longer than the protocol allows.',
  lease_expired:
    'The holder died or lost the database for longer than its lease; the message was given to others.',
  message_missing:
    'The delivery points to a message that does not exist any more. It goes to the dead letters at once and can only be discarded.',
  nack: 'A worker called `nack` and gave no code of its own.',
  max_attempts_lowered: 'The destination was given a smaller maximum than this delivery had tries.',
  cancelled: 'An operator cancelled it (`cancel`, `discard_deliveries`).',
  moved: 'An operator moved it to another destination (`move_deliveries`).',
};

const stateMeanings = {
  '0A000':
    'The relay is older than this schema works with: upgrade it ([rolling upgrades](deployment.md#rolling-upgrades)).',
  22023:
    'An argument cannot be used: a message that breaks a rule, a number or an interval out of its range. The text names it, shows it and says what is allowed.',
  22004: 'An argument is null that must not be (`claim` without a token).',
  23505:
    'The name of a token or an endpoint is taken already; one that was removed keeps its name.',
  25001:
    '`settle`, `ack`, `nack`, `mark_delivered` or a function that seals was called in REPEATABLE READ or SERIALIZABLE. Call it in READ COMMITTED.',
  40001:
    'A dedupe key, or a message in the inbox, expired while it was being compared, or a table was watched after the transaction had begun. Run the transaction again.',
  42501:
    'The role may not do this: the function is for others, or a watch needs the TRIGGER right on its table. The hint says what to grant; see [roles](roles.md).',
  55000:
    'A watched table cannot be written like this (a TRUNCATE that is not reported, a watch that lost its columns), or a cursor cannot be read here (a standby, a restored dump). The text says what to do.',
  '55P03':
    'A lock could not be had in time, or `remove_partition` found its partition in use again, or not sealed to its end. Try again later.',
  P0001:
    'Attempts, operator actions and seals are records, to which rows are only ever added; and messages, deliveries, leases and dead letters are never truncated. It holds for everybody, the owner and superusers too.',
  P0002:
    'There is no destination, cursor, watch or endpoint of this name. The hint lists those that there are.',
};

const exitMeanings = {
  ok: 'done',
  error: 'an error, such as a database that cannot be reached',
  usage: 'the command line or the configuration cannot be used',
  notFound: 'nothing matches, or there is nothing of that name',
  refused: 'refused: it needs `--yes`, or would lose something',
  limitReached: '`drain` only: a limit was reached before the queue was empty',
  breakingChange: '`events check` only: an event changed in a way that breaks somebody',
  tampered: '`audit verify` only: something was touched after it was sealed',
  tooOld:
    '`start` and `drain`: the schema works with newer relays only, at the start or since it was migrated meanwhile',
  findings:
    '`doctor`: a check has a warning or an error; `rollout report`: something was not alike',
};

const environmentMeanings = {
  DATABASE_URL: 'the address of the database',
  DATABASE_DIRECT_URL:
    'a direct address for LISTEN, retention and migrations, when `DATABASE_URL` leads through a pooler',
  DATABASE_REPLICA_URL:
    'a hot standby that answers what only reads: see [replicas](replicas.md); or `DATABASE_REPLICA_URL_FILE`',
  DATABASE_SERVER_URL:
    'the database as the page and the API use it, where the relay’s login may do less: see [roles](roles.md); or `DATABASE_SERVER_URL_FILE`',
  PGHOST: 'with the other `PG…` variables, instead of `DATABASE_URL`',
  WAYBILL_SCHEMA: 'the schema (default `outbox`); `--schema` is above it',
  WAYBILL_SECRET_KEY:
    'seals the secrets of endpoints: 32 bytes in base64, or several separated by commas, of which the first seals and all open; or `WAYBILL_SECRET_KEY_FILE`',
  WAYBILL_ENDPOINT_SECRET:
    'for `waybill endpoints add` and `rotate`: a secret that the receiver brings; or `WAYBILL_ENDPOINT_SECRET_FILE`',
  WAYBILL_LOG_LEVEL: '`debug`, `info` or `warn`: what is logged to standard error',
  NO_COLOR: 'Any value: `waybill tail` uses no colours, also on a terminal.',
};

const eventMeanings = {
  relay_started: 'It listens, claims and delivers.',
  relay_stopped: 'Everything it held is settled or given back.',
  relay_refused:
    'The schema was migrated and works with newer relays only: this one gives back what it holds and stops. Upgrade it.',
  shard_unavailable:
    'The database of a shard cannot be served; it is tried again after `againMs`. The others go on.',
  other_configuration:
    'Another living relay runs with other destinations or routes. Normal for the length of a roll-out.',
  claimed: 'One batch came in.',
  settled: 'The endings of one batch were recorded.',
  delivery_failed: 'One delivery failed; `outcome` says how.',
  lease_lost:
    'The lease ran out and somebody else has these messages now. They may arrive twice, with the same id.',
  leases_released: 'Messages of a claim whose answer was lost were given back; no try was spent.',
  reaped: 'Messages of a relay that died were given back, or went to the dead letters.',
  woken: 'A producer rang.',
  listen_unavailable: 'LISTEN does not work; the fallback poll does the work meanwhile.',
  trouble: 'Something failed and will be tried again; `what` and `error` say what.',
  destination_hung: 'As many calls as the concurrency allows have ignored their timeout.',
  destination_paused:
    'An answer of the destination has paused it; `failure` says which. Deliveries wait until somebody resumes it.',
  breaker_opened:
    'The circuit breaker of a destination opened at this relay; `because` and `failures` say why, `forMs` for how long.',
  breaker_closed: 'A probe succeeded: deliveries go on.',
  endpoints_changed: 'Endpoints of the database were opened, changed or closed.',
  endpoints_waiting:
    'Endpoints cannot be served, and their deliveries wait; `problem` says which, why, and what to do.',
  stream_taken: 'This reader holds the cursor now.',
  stream_lost:
    'Somebody else holds the cursor now, or it was reset. What was under way may come twice.',
  stream_read: 'One batch of the log was processed.',
  stream_failed: 'A message of the log could not be processed; `outcome` says how.',
  stream_parked: 'A message of the log went to the dead letters, and the rest goes on.',
  partitions_made: 'Partitions were made ahead.',
  partition_alarm: 'Partitions exist for fewer than 30 days ahead, and no more could be made.',
  audit_sealed:
    'A stretch was sealed: its number and the head of the chain, to be compared with later.',
  watches_mended: 'New partitions of watched tables have got their triggers.',
  pruned: 'Retention removed something.',
  alert_firing: 'The webhook for alerts was told that this alert fires, or that it still does.',
  alert_resolved: 'The webhook for alerts was told that this alert fires no more.',
  alert_untold:
    'The webhook for alerts could not be told; `outcome` says why. It is told again, after 5 seconds at first and 5 minutes at last.',
  replica_used: 'What only reads is answered by the replica, from now on or again.',
  replica_unused:
    'The primary answers what only reads, because the replica cannot be used; `reason` says why.',
  serving: 'The HTTP port listens at `url`.',
};

/** @returns {Promise<Record<string, string>>} */
export async function codeTables() {
  return {
    errors: errorTable(),
    attemptCodes: attemptTable(),
    kafkaErrors: await kafkaTable(),
    sqlStates: stateTable(),
    exitCodes: await exitTable(),
    doctorChecks: await doctorTable(),
    environment: environmentTable(),
    events: await eventTable(),
    metrics: await metricTable(),
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
  const fromCode = ['src/model', 'src/relay', 'src/destinations', 'src/events']
    .flatMap((folder) => sources(folder, '.ts'))
    .flatMap((text) =>
      [
        ...text.matchAll(/\b(?:retry|reject|pause)\(\{\s*code: '(\w+)'/g),
        // the tables of what the codes of the other side mean
        ...text.matchAll(/\['(?:retry|reject|pause)', '(\w+)'\]/g),
        ...text.matchAll(/\bkind: '(?:retry|reject|pause)', code: '(\w+)'/g),
        // the rows of the tables in which destinations say what an error means
        ...text.matchAll(/\bkind: '(?:retry|reject|pause)',\s*code: '(\w+)'/g),
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

async function kafkaTable() {
  /** @type {{ verdicts: Record<string, { name: string, kind: string, code: string }> }} */
  const { verdicts } = await jiti.import('../src/destinations/kafka/verdicts.ts');
  return table(
    ['code of the broker', 'outcome', 'error_code'],
    Object.entries(verdicts)
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

async function exitTable() {
  /** @type {{ exitCode: Record<string, number> }} */
  const { exitCode } = await jiti.import('../src/cli/output.ts');
  assertSame('exit codes', Object.keys(exitCode), exitMeanings);
  const rows = Object.entries(exitCode).map(([name, code]) => [
    code,
    exitMeanings[/** @type {keyof exitMeanings} */ (name)],
  ]);
  return table(['exit code', 'meaning'], rows);
}

async function doctorTable() {
  /** @type {{ checks: { code: string, title: string, finds: string }[] }} */
  const { checks } = await jiti.import('../src/database/doctor/doctor.ts');
  return table(
    ['code', 'looks whether', 'finds'],
    checks.map(({ code, title, finds }) => [`\`${code}\``, title, finds]),
  );
}

function environmentTable() {
  const names = sources('src', '.ts').flatMap((text) =>
    [
      ...text.matchAll(
        /process\.env\['(\w+)'\]|secretFromEnvironment\('(\w+)'\)|ariable = '(WAYBILL_\w+)'/g,
      ),
    ].map(([, read, secret, named]) => read ?? secret ?? named),
  );
  assertSame('environment variables', [...new Set(names)], environmentMeanings);
  return table(
    ['variable', 'meaning'],
    Object.entries(environmentMeanings).map(([name, meaning]) => [`\`${name}\``, meaning]),
  );
}

async function eventTable() {
  const text = readFileSync(path.join(root, 'src/telemetry/events.ts'), 'utf8');
  const union = text.slice(
    text.indexOf('export type RelayEvent'),
    text.indexOf('export type Emit'),
  );
  const names = [...union.matchAll(/name: '(\w+)'/g)].map(([, name]) => name);
  assertSame('events', names, eventMeanings);
  /** @type {{ eventLevel: (event: { name: string }) => string }} */
  const { eventLevel } = await jiti.import('../src/telemetry/events.ts');
  const metrics = await readMetrics();
  return table(
    ['event', 'level', 'meaning', 'counted in'],
    names.map((name) => [
      `\`${name}\``,
      eventLevel({ name }),
      eventMeanings[/** @type {keyof eventMeanings} */ (name)],
      metrics
        .filter(([, { events }]) => events.includes(name))
        .map(([metric]) => `\`${metric}\``)
        .join(', ') || '–',
    ]),
  );
}

/** @returns {Promise<[string, { type: string, labels: string[], help: string, events: string[] }][]>} */
async function readMetrics() {
  /** @type {{ metricCatalogue: Record<string, { type: string, labels: string[], help: string, events: string[] }> }} */
  const { metricCatalogue } = await jiti.import('../src/telemetry/metric-catalogue.ts');
  return Object.entries(metricCatalogue);
}

async function metricTable() {
  return table(
    ['metric', 'type', 'labels', 'meaning'],
    (await readMetrics()).map(([name, { type, labels, help }]) => [
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
