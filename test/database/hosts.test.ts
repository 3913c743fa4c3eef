// The restrictions of managed PostgreSQL, recreated: logins without superuser and CREATEROLE that do not own the
// database, timeouts that the host sets, and a proxy that keeps a session for each client.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { afterAll, describe, expect, inject, it, onTestFinished } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { connectDirectly } from '../../src/database/direct-connection.js';
import { installRoles, planRoles } from '../../src/database/roles.js';
import { handler } from '../../src/destinations/handler.js';
import { cli, json, startCli, writeConfig } from '../support/cli.js';
import { only } from '../support/only.js';
import { findPgbouncer, startPgbouncer } from '../support/pgbouncer.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { numbered, send, startRelay, untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const pgbouncer = findPgbouncer() ?? '';
const major = inject('postgresMajor');

const config = `{
  destinations: { crm: handler(() => undefined) },
  routes: [{ topic: 'user.*', to: 'crm' }],
  server: { port: 0 },
}`;

const prefixes: string[] = [];

afterAll(async () => {
  const { rows } = await db.query<{ name: string }>(
    `SELECT quote_ident(rolname) AS name FROM pg_roles WHERE substring(rolname FROM '^h[0-9a-f]{8}_') = ANY ($1)`,
    [prefixes],
  );
  for (const { name } of rows) await db.query(`DROP ROLE ${name}`);
});

/** An empty database as a host gives it: a login may create schemas in it, and has no other right. */
async function hostedDatabase() {
  const { url, client: superuser } = await otherDatabase('empty');
  const prefix = `h${randomUUID().slice(0, 8)}_`;
  prefixes.push(prefix);
  const { rows } = await superuser.query<{ name: string }>('SELECT current_database() AS name');
  const { name } = only(rows);
  const urlOf = (login: string): string => Object.assign(new URL(url), { username: login }).href;
  onTestFinished(async () => {
    // the roles can be dropped when nothing in a database depends on them
    await superuser.query(`DROP SCHEMA IF EXISTS ${db.quoted} CASCADE`);
    await superuser.query(`ALTER DATABASE ${name} OWNER TO CURRENT_USER`);
  });
  const run = (login: string, ...args: string[]) =>
    cli(args, { environment: { DATABASE_URL: urlOf(login), WAYBILL_SCHEMA: db.schema } });
  const succeed = async (login: string, ...args: string[]) => {
    const ended = await run(login, ...args);
    expect(ended, `${args.join(' ')}: ${ended.stderr}`).toMatchObject({ code: 0 });
    return ended;
  };
  const makeLogin = async (login: string, attributes = '') => {
    await superuser.query(`CREATE ROLE ${prefix}${login} LOGIN ${attributes}`);
    await superuser.query(`GRANT CREATE ON DATABASE ${name} TO ${prefix}${login}`);
    return `${prefix}${login}`;
  };
  return { url, urlOf, superuser, name, prefix, run, succeed, makeLogin };
}

type Hosted = Awaited<ReturnType<typeof hostedDatabase>>;

/** Enqueues as the application, and delivers with a relay and then with a drain. */
async function deliver(
  { urlOf, succeed, superuser }: Hosted,
  { application, relay }: { application: string; relay: string },
): Promise<void> {
  const file = writeConfig(config);
  const enqueue = async () => {
    const client = new pg.Client({ connectionString: urlOf(application) });
    await client.connect();
    await client.query(`SELECT ${db.quoted}.enqueue('user.registered', '{"n": 1}', key => 'k')`);
    await client.end();
  };
  const started = startCli(['start', '--config', file, '--no-server'], {
    environment: { DATABASE_URL: urlOf(relay), WAYBILL_SCHEMA: db.schema },
  });
  await started.says(/"msg":"(started|relay_started)"|started/);
  await enqueue();
  await waitFor(
    async () => {
      const { rows } = await superuser.query(
        `SELECT FROM ${db.quoted}.attempts WHERE state = 'dispatched'`,
      );
      return rows.length === 1;
    },
    { what: 'the delivery by a relay' },
  );
  started.process.kill('SIGTERM');
  expect(await started.ended(15_000)).toMatchObject({ code: 0 });
  await enqueue();
  const drained = json(await succeed(relay, 'drain', '--config', file, '--json'));
  expect(drained).toMatchObject({ succeeded: 1, finished: true });
}

const health = `SELECT name, detail FROM ${db.quoted}.health_check() WHERE NOT ok`;

// each migrates one or two databases in processes of their own
const timeout = 180_000;

describe(
  'a login without superuser and CREATEROLE, which does not own the database',
  { timeout },
  () => {
    it('P13 N12 migrates, enqueues, delivers and drains without roles', async () => {
      const hosted = await hostedDatabase();
      const login = await hosted.makeLogin('app');
      await hosted.succeed(login, 'migrate', 'up');
      await deliver(hosted, { application: login, relay: login });
      await hosted.succeed(login, 'maintain');
      expect((await hosted.superuser.query(health)).rows).toEqual([]);
    });

    it('P13 is told what an administrator must run, and then installs the roles', async () => {
      const hosted = await hostedDatabase();
      const { prefix, superuser, urlOf, succeed, run } = hosted;
      const login = await hosted.makeLogin('app');
      await succeed(login, 'migrate', 'up');

      const refused = await run(login, 'roles', 'install', '--prefix', prefix);
      expect(refused.code).not.toBe(0);
      expect(refused.stderr).toContain(`${login} may not run CREATE ROLE ${prefix}auditor NOLOGIN`);
      const statements = /run this again: (.*;)/.exec(refused.stderr)?.[1] ?? '';
      expect(statements).toContain(`GRANT ${prefix}owner TO ${login};`);
      expect(statements).toContain(`GRANT CREATE ON DATABASE ${hosted.name} TO ${prefix}owner;`);
      await superuser.query(statements);

      await succeed(login, 'roles', 'install', '--prefix', prefix);
      expect(await planRoles({ url: urlOf(login), schema: db.schema }, prefix)).toEqual([]);
      // it revokes only the rights that it granted
      const { rows } = await superuser.query<{ creates: boolean }>(
        `SELECT has_database_privilege('${prefix}owner', current_database(), 'CREATE') AS creates`,
      );
      expect(rows).toEqual([{ creates: true }]);
      await superuser.query(`REVOKE CREATE ON DATABASE ${hosted.name} FROM ${prefix}owner`);
      await succeed(login, 'migrate', 'up');

      await superuser.query(`CREATE ROLE ${prefix}shop LOGIN IN ROLE ${prefix}producer`);
      await superuser.query(
        `CREATE ROLE ${prefix}dispatch LOGIN IN ROLE ${prefix}relay, ${prefix}maintenance`,
      );
      await deliver(hosted, { application: `${prefix}shop`, relay: `${prefix}dispatch` });
      expect((await superuser.query(health)).rows).toEqual([]);
    });

    it('P13 two administrators with CREATEROLE share roles that the first has created', async () => {
      const [one, two] = [await hostedDatabase(), await hostedDatabase()];
      const { prefix } = one;
      const install = async (hosted: Hosted, login: string) => {
        await hosted.superuser.query(`ALTER DATABASE ${hosted.name} OWNER TO ${login}`);
        await hosted.succeed(login, 'migrate', 'up');
        return hosted.run(login, 'roles', 'install', '--prefix', prefix);
      };
      const first = await one.makeLogin('first', 'CREATEROLE');
      const second = await two.makeLogin('second', 'CREATEROLE');
      expect(await install(one, first)).toMatchObject({ code: 0 });
      const tried = await install(two, second);
      // since PostgreSQL 16, CREATEROLE alone is not enough to grant a role that another login has created
      const refusal = `${second} may not run GRANT ${prefix}owner TO ${second}`;
      expect(tried.stderr.includes(refusal), tried.stderr).toBe(major >= 16);
      await one.superuser.query(`GRANT ${prefix}owner TO ${second}`);
      await two.succeed(second, 'roles', 'install', '--prefix', prefix);
      for (const { superuser } of [one, two])
        expect((await superuser.query(health)).rows).toEqual([]);
    });

    it('P13 the same administrator shares its roles between two databases', async () => {
      const [one, two] = [await hostedDatabase(), await hostedDatabase()];
      const login = await one.makeLogin('both', 'CREATEROLE');
      for (const { superuser, name, succeed, urlOf } of [one, two]) {
        await superuser.query(`ALTER DATABASE ${name} OWNER TO ${login}`);
        await succeed(login, 'migrate', 'up');
        await installRoles({ url: urlOf(login), schema: db.schema }, one.prefix);
        expect((await superuser.query(health)).rows).toEqual([]);
      }
    });
  },
);

describe('timeouts of the host', () => {
  const limits = {
    statement_timeout: '500ms',
    idle_in_transaction_session_timeout: '500ms',
    idle_session_timeout: '500ms',
    ...(major >= 17 && { transaction_timeout: '800ms' }),
  };

  /** For this login in this database only: the tests' own sessions have no limits. */
  async function limit(client: Pick<pg.Client, 'query'>, login: string, database: string) {
    for (const [name, value] of Object.entries(limits))
      await client.query(`ALTER ROLE ${login} IN DATABASE ${database} SET ${name} = '${value}'`);
  }

  it('N10 P7 a relay listens on for longer than the host allows an idle session', async () => {
    const superuser = await db.connect();
    await limit(superuser, 'test_relay', new URL(db.url).pathname.slice(1));
    const relay = await startRelay(db, {
      destinations: { patient: handler(() => undefined) },
      relay: { fallbackPollMs: null },
    });
    const listening = async () => {
      const { rows } = await db.query<{ pid: number; old: boolean }>(
        `SELECT pid, now() - backend_start > interval '2 s' AS old FROM pg_stat_activity
          WHERE application_name = 'waybill listen' AND datname = current_database()`,
      );
      return rows;
    };
    const { pid } = await waitFor(async () => (await listening())[0], { what: 'a listener' });
    await waitFor(async () => (await listening()).some((each) => each.old), {
      what: 'a listener that is older than the timeout of the host',
    });
    await send(db, numbered('patient', 3));
    await untilPlaces(db, 'patient', { delivered: 3 });
    expect((await listening()).map((each) => each.pid)).toEqual([pid]);
    expect(relay.of('trouble')).toEqual([]);
    await relay.stop();
  });

  it('N12 migrations run under their own limits', async () => {
    const { urlOf, superuser, makeLogin, succeed, name } = await hostedDatabase();
    const login = await makeLogin('app');
    await limit(superuser, login, name);
    await succeed(login, 'migrate', 'up');
    const client = await connectDirectly(
      resolveDatabaseOptions({ url: urlOf(login), schema: db.schema }),
    );
    onTestFinished(() => client.end());
    const { rows } = await client.query(
      `SELECT current_setting('statement_timeout') AS statement, current_setting('idle_session_timeout') AS idle,
              coalesce(current_setting('transaction_timeout', true), '0') AS transaction`,
    );
    expect(rows).toEqual([{ statement: '30s', idle: '0', transaction: '0' }]);
    expect((await superuser.query(health)).rows).toEqual([]);
  });
});

describe.skipIf(pgbouncer === '')('a proxy that keeps a session for each client', () => {
  it('P7 N10 a relay delivers through it, and limits each transaction', async () => {
    const url = await startPgbouncer(pgbouncer, db.url, { poolMode: 'session', connections: 20 });
    const relay = await startRelay(db, {
      destinations: { pinned: handler(() => undefined) },
      database: { url },
    });
    await send(db, numbered('pinned', 50));
    await untilPlaces(db, 'pinned', { delivered: 50, waiting: 0, leased: 0 });
    await relay.stop();
    expect(relay.of('trouble')).toEqual([]);
    const database = new Database(resolveDatabaseOptions({ url, schema: db.schema }), {
      connections: 1,
      applicationName: 'waybill test',
    });
    onTestFinished(() => database.close());
    await database.query('read', 'SELECT 1', [], { prepared: true });
    // a proxy pins a connection that has prepared statements or session settings
    expect(
      await database.query(
        'look',
        `SELECT (SELECT count(*)::int FROM pg_prepared_statements) AS prepared,
                (SELECT count(*)::int FROM pg_settings WHERE name = 'statement_timeout' AND reset_val = '30000') AS kept`,
      ),
    ).toEqual([{ prepared: 0, kept: 0 }]);
  });
});
