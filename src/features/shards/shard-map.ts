// Shard map: says which shard a tenant belongs to. Tenants that are assigned explicitly come first; every other tenant
// goes to the shard with the largest hash of shard and tenant (rendezvous hashing). So all processes agree without a
// coordinator, and an added shard takes its share from the others and moves nothing between them. SHA-256 of UTF-8 text
// is the same in every language, and in SQL.

import { createHash } from 'node:crypto';

import { ConfigurationError, MessageRefusedError, shown } from '../../core/errors.js';
import type { Message } from '../../core/message.js';
import { refuse } from '../../core/options.js';

export type ShardMap = {
  readonly names: readonly string[];
  /** Without a tenant: the default shard, or an error if none is declared. */
  shardOf(tenant: string | null | undefined): string;
};

/** The shard that a producer writes to, and the map that it belongs to. */
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

/** Names of shards contain no slash, so two different pairs never make the same text. */
function hashOf(name: string, tenant: string): string {
  return createHash('sha256').update(`${name}/${tenant}`, 'utf8').digest('hex');
}

/** Checks the option `shard` of an outbox. */
export function ownShardKind(name: string, value: unknown): OwnShard | undefined {
  if (value === undefined) return undefined;
  const { of, name: own } = (value ?? {}) as Partial<OwnShard>;
  if (typeof of?.shardOf !== 'function' || !Array.isArray(of.names))
    refuse(`${name}.of`, typeof of, 'give the result of defineShards');
  if (!of.names.includes(own ?? '')) refuse(`${name}.name`, own, `give ${of.names.join(', ')}`);
  return { of, name: own as string };
}

/**
 * Rejects messages of other shards before anything is written: in the wrong database they would break their tenant's
 * order.
 */
export function refuseForeign({ of, name }: OwnShard, messages: readonly Message[]): void {
  for (const message of messages) {
    const tenant = message?.tenantId;
    // an invalid tenant id is refused by its own check
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
