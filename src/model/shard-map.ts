// Which shard a tenant belongs to. What is written down comes first; every other tenant goes where the hash of shard
// and tenant together is the largest (rendezvous hashing). So all processes agree without asking anybody, and a shard
// that is added takes its share from the others and moves nothing between them. SHA-256 of UTF-8 text is the same in
// every language, and in SQL.

import { createHash } from 'node:crypto';

import { ConfigurationError, MessageRefusedError, shown } from '../errors.js';
import type { Message } from './message.js';
import { refuse } from './options.js';

export type ShardMap = {
  readonly names: readonly string[];
  /** Without a tenant: the default shard; an error if none is declared. */
  shardOf(tenant: string | null | undefined): string;
};

/** A producer's own place in the map. */
export type OwnShard = { of: ShardMap; name: string };

export function shardOf(
  {
    names,
    tenants,
    fallback,
  }: {
    names: readonly string[];
    tenants: ReadonlyMap<string, string>;
    fallback: string | undefined;
  },
  tenant: string | null | undefined,
): string {
  if (tenant === undefined || tenant === null) {
    if (fallback !== undefined) return fallback;
    throw new ConfigurationError(
      `there is no tenant, and no shard for those without one: give a tenant, or declare default in defineShards, one of ${names.join(', ')}`,
    );
  }
  if (typeof tenant !== 'string' || tenant === '')
    throw new ConfigurationError(`the tenant is ${shown(tenant)}: give a tenant id, or null`);
  return tenants.get(tenant) ?? largest(names, tenant);
}

function largest(names: readonly string[], tenant: string): string {
  const ranked = names.map((name) => ({ name, hash: hashOf(name, tenant) }));
  return ranked.reduce((best, other) => (other.hash > best.hash ? other : best)).name;
}

/** No name of a shard has a slash in it, so two different pairs never make one text. */
function hashOf(name: string, tenant: string): string {
  return createHash('sha256').update(`${name}/${tenant}`, 'utf8').digest('hex');
}

/** For the option `shard` of an outbox. */
export function ownShardKind(name: string, value: unknown): OwnShard | undefined {
  if (value === undefined) return undefined;
  const { of, name: own } = (value ?? {}) as Partial<OwnShard>;
  if (typeof of?.shardOf !== 'function' || !Array.isArray(of.names))
    refuse(`${name}.of`, typeof of, 'give what defineShards gives');
  if (!of.names.includes(own ?? '')) refuse(`${name}.name`, own, `give ${of.names.join(', ')}`);
  return { of, name: own as string };
}

/** Refused before anything is written: a message in the wrong database would be delivered beside its tenant's order. */
export function refuseForeign({ of, name }: OwnShard, messages: readonly Message[]): void {
  for (const message of messages) {
    const tenant = message?.tenantId;
    // what is no tenant id at all is refused by its own rule
    if (tenant !== undefined && (typeof tenant !== 'string' || tenant === '')) continue;
    const right = of.shardOf(tenant);
    if (right === name) continue;
    const what =
      tenant === undefined
        ? 'is missing, and what has no tenant belongs'
        : `${shown(tenant)} belongs`;
    throw new MessageRefusedError(
      'tenantId',
      `${what} to the shard ${right}, and this outbox writes to ${name}: open the transaction in the database of ${right}`,
    );
  }
}
