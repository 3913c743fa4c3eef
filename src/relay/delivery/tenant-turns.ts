// Tenant turns: remembers which tenants the claims have served last, for messages without and with a key. With
// fairness, each claim continues after them.

import type { ClaimedMessage } from '../../core/claimed-message.js';

export class TenantTurns {
  #afterTenant: string | null = null;
  #afterLaneTenant: string | null = null;

  get afterTenant(): string | null {
    return this.#afterTenant;
  }

  get afterLaneTenant(): string | null {
    return this.#afterLaneTenant;
  }

  served(messages: readonly ClaimedMessage[]): void {
    const queued = messages.filter(({ keyId }) => keyId === null);
    const keyed = messages.filter(({ keyId }) => keyId !== null);
    this.#afterTenant = lastServed(queued, this.#afterTenant);
    this.#afterLaneTenant = lastServed(keyed, this.#afterLaneTenant);
  }
}

/** The tenant that a claim served last. Claims serve tenants in order, start after `after` and wrap around. */
function lastServed(messages: readonly ClaimedMessage[], after: string | null): string | null {
  if (messages.length === 0) return after;
  const tenants = messages.map(({ tenantId }) => tenantId ?? '');
  const wrapped = tenants.filter((tenant) => byBytes(tenant, after ?? '') <= 0);
  return (wrapped.length > 0 ? wrapped : tenants).reduce((a, b) => (byBytes(a, b) > 0 ? a : b));
}

/** The sort order of the database. */
function byBytes(a: string, b: string): number {
  return Buffer.from(a).compare(Buffer.from(b));
}
