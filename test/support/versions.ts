// Versions of the application "shop" for tests of declarations: one destination "crm" and some topics.

import { randomUUID } from 'node:crypto';

import { resolveConfig } from '../../src/config.js';
import { applyDefinitions, tendDefinitions } from '../../src/features/applications/database.js';
import type { DefinitionChange } from '../../src/features/applications/database.js';
import { handler } from '../../src/destinations/handler.js';
import { Declarations } from '../../src/features/applications/declarations.js';
import { definitionsOf } from '../../src/relay/setup.js';
import type { TestDatabase } from './postgres.js';
import { configOf, makeRelay, openDatabase } from './relay.js';
import type { RelaySettings, TestRelay } from './relay.js';

/** A version of the application; `maxAttempts` tells the versions apart. */
export function version(maxAttempts: number, ...topics: string[]): RelaySettings {
  return {
    application: 'shop',
    version: String(maxAttempts),
    destinations: { crm: handler(() => undefined, { retry: { maxAttempts } }) },
    routes: topics.map((topic) => ({ topic, to: 'crm' })),
  };
}

export const drain = (db: TestDatabase, settings: RelaySettings) =>
  makeRelay(db, settings).relay.drain({ maxMs: 1000, maxMessages: 10 });

/** Runs `waybill apply` with the configuration. */
export async function apply(
  db: TestDatabase,
  settings: RelaySettings,
  { prune = false, dryRun = false }: { prune?: boolean; dryRun?: boolean } = {},
): Promise<DefinitionChange[]> {
  const setup = resolveConfig(configOf(db, settings));
  return applyDefinitions(
    openDatabase(db),
    { application: setup.application, definitions: definitionsOf(setup) },
    { prune, dryRun, actor: 'test' },
  );
}

/** Settles the definitions as a running relay does every minute; returns what it added, changed and removed. */
export async function tend(
  db: TestDatabase,
  { relay }: { relay: Pick<TestRelay['relay'], 'id'> },
): Promise<DefinitionChange[]> {
  const { changes } = await tendDefinitions(openDatabase(db), relay.id, 'test');
  return changes.filter(({ change }) => change !== 'leave');
}

/** The declarations of a relay that does nothing else: it sends a heartbeat only when it is told to. */
export function declarer(db: TestDatabase, settings: RelaySettings) {
  const setup = resolveConfig(configOf(db, settings));
  const relay = { id: randomUUID(), name: 'declarer' };
  const declarations = new Declarations(setup, openDatabase(db), relay, () => []);
  return {
    relay,
    declare: () => declarations.declare('start'),
    tend: () => declarations.tend(),
    beat: () =>
      db.query(
        `SELECT ${db.quoted}.heartbeat($1, $2, '99.0.0', 'c', '{}', p_application => 'shop')`,
        [relay.id, relay.name],
      ),
    signOff: () => db.query(`SELECT ${db.quoted}.sign_off($1)`, [relay.id]),
  };
}
