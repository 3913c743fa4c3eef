// Hosts of PostgreSQL: recognises a managed host by what it leaves in the database and by the host name of the address,
// and says what is special there. docs/operate/hosts.md has the details.

import type { Database } from '../database/connection.js';
import { readRow } from './check.js';

export type HostFacts = {
  /** What `version()` returns. */
  version: string;
  roles: string[];
  settings: string[];
  extensions: string[];
  functions: string[];
  /** The host names of the addresses; empty for a socket. */
  names: string[];
};

export type Host = {
  name: string;
  /** What to know about it, as a part of a sentence. */
  advice: string;
  /** The address for LISTEN, retention and migrations. */
  direct: string;
  /** Where settings of the server are changed, because ALTER SYSTEM is refused. */
  settings?: string;
  /** Why Waybill does not run there. */
  unsupported?: string;
};

type Known = Host & {
  role?: string;
  setting?: string;
  extension?: string;
  function?: string;
  hostName?: RegExp;
  version?: RegExp;
};

const noPostgres = 'Use PostgreSQL 15 to 18.';
const ofParameters = 'the parameter group';

/** The first that fits counts: proxies before databases, the special before the general. */
const hosts: readonly Known[] = [
  {
    name: 'CockroachDB',
    version: /CockroachDB/,
    advice: '',
    direct: noPostgres,
    unsupported: "it has no LISTEN and NOTIFY, and its partitions and locks are not PostgreSQL's",
  },
  {
    name: 'YugabyteDB',
    version: /YugabyteDB|-YB-/,
    advice: '',
    direct: noPostgres,
    unsupported: 'it has no exclusive table locks, on which migrations and retention depend',
  },
  {
    name: 'Amazon Aurora DSQL',
    hostName: /\.dsql\.[^.]+\.on\.aws$/,
    advice: '',
    direct: noPostgres,
    unsupported: 'it has no PL/pgSQL, no triggers and no partitions',
  },
  {
    name: 'Cloudflare Hyperdrive',
    hostName: /\.hyperdrive\.local$/,
    advice:
      'it serves producers in Workers; relays and migrations need the address of the database',
    direct: 'the address of the database behind it',
  },
  {
    name: 'Amazon RDS Proxy',
    hostName: /\.proxy-[^.]+\.[^.]+\.rds\.amazonaws\.com(\.cn)?$/,
    advice: 'it gives every relay connection a connection of its own, so it saves none',
    direct: 'the endpoint of the instance, or the writer endpoint of the cluster',
    settings: ofParameters,
  },
  {
    name: 'Amazon Aurora',
    function: 'aurora_version',
    advice: 'use the writer endpoint; a relay keeps Serverless v2 from pausing',
    direct: 'the writer endpoint of the cluster',
    settings: 'the parameter group of the cluster',
  },
  {
    name: 'Amazon RDS',
    role: 'rds_superuser',
    setting: 'rds.extensions',
    advice: 'the master user may create roles, and is no superuser',
    direct: 'the endpoint of the instance',
    settings: ofParameters,
  },
  {
    name: 'AlloyDB',
    role: 'alloydbsuperuser',
    advice: 'the user postgres may create roles, and is no superuser',
    direct: 'the address of the primary instance, port 5432',
    settings: 'the database flags of the instance',
  },
  {
    name: 'Google Cloud SQL',
    role: 'cloudsqlsuperuser',
    advice: 'the user postgres may create roles, and is no superuser',
    direct: 'the address of the instance, port 5432',
    settings: 'the database flags of the instance',
  },
  {
    name: 'Azure Database for PostgreSQL',
    role: 'azure_pg_admin',
    setting: 'azure.extensions',
    advice: 'port 6432 is its PgBouncer, port 5432 the database',
    direct: 'the same host with port 5432',
    settings: 'the server parameters',
  },
  {
    name: 'Neon',
    role: 'neon_superuser',
    setting: 'neon.timeline_id',
    hostName: /\.neon\.tech$/,
    advice: 'a relay keeps the compute from scaling to zero; use scheduled drains to let it',
    direct: 'the host name without -pooler',
    settings: 'the settings of the project',
  },
  {
    name: 'Supabase',
    role: 'supabase_admin',
    hostName: /\.supabase\.(co|com)$/,
    advice: 'port 6543 of its pooler keeps no session, port 5432 does',
    direct: 'the direct connection, or the pooler with port 5432 (session mode)',
    settings: 'the configuration of the project',
  },
  {
    name: 'PlanetScale Postgres',
    hostName: /\.psdb\.cloud$/,
    advice: 'port 6432 is its PgBouncer, port 5432 the database',
    direct: 'the same host with port 5432',
    settings: 'the parameters of the cluster',
  },
  {
    name: 'Fly Managed Postgres',
    hostName: /\.flympg\.net$/,
    advice: 'pgbouncer.… is its PgBouncer, direct.… the database',
    direct: 'the host name that begins with direct.',
  },
  {
    name: 'Aiven for PostgreSQL',
    role: 'avnadmin',
    extension: 'aiven_extras',
    hostName: /\.aivencloud\.com$/,
    advice: 'avnadmin may create roles, and is no superuser',
    direct: 'the address of the service, not that of a connection pool',
    settings: 'the advanced configuration of the service',
  },
  {
    name: 'Crunchy Bridge',
    hostName: /\.postgresbridge\.com$/,
    advice: 'the user postgres is a superuser',
    direct: 'the address of the cluster, not that of its PgBouncer',
  },
  {
    name: 'Render',
    hostName: /\.render\.com$|^dpg-/,
    advice: 'use its internal address for relays on Render',
    direct: 'the internal address of the database',
  },
];

/** The host that these facts show; undefined if none is known. */
export function recognise(facts: HostFacts): Host | undefined {
  return hosts.find(
    (host) =>
      host.version?.test(facts.version) === true ||
      (host.role !== undefined && facts.roles.includes(host.role)) ||
      (host.setting !== undefined && facts.settings.includes(host.setting)) ||
      (host.extension !== undefined && facts.extensions.includes(host.extension)) ||
      (host.function !== undefined && facts.functions.includes(host.function)) ||
      facts.names.some((name) => host.hostName?.test(name) === true),
  );
}

const all = (part: 'role' | 'setting' | 'extension' | 'function'): string[] =>
  hosts.flatMap((host) => host[part] ?? []);

export async function findHost(database: Database): Promise<Host | undefined> {
  const { url, directUrl } = database.options;
  const facts = await readRow<Omit<HostFacts, 'names'>>(
    database,
    'recognise host',
    `SELECT version(),
            ARRAY (SELECT r.rolname::text FROM pg_roles r WHERE r.rolname = ANY ($1)) AS roles,
            ARRAY (SELECT s FROM unnest($2::text[]) s WHERE current_setting(s, true) IS NOT NULL) AS settings,
            ARRAY (SELECT e.extname::text FROM pg_extension e WHERE e.extname = ANY ($3)) AS extensions,
            ARRAY (SELECT p.proname::text FROM pg_proc p WHERE p.proname = ANY ($4)) AS functions`,
    [all('role'), all('setting'), all('extension'), all('function')],
  );
  return recognise({ ...facts, names: [url, directUrl].flatMap(hostNameOf) });
}

function hostNameOf(address: string | undefined): string[] {
  return address !== undefined && URL.canParse(address) ? [new URL(address).hostname] : [];
}
