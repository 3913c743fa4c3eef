// Single sign-on: a proxy in front of the port has authenticated the user and sends the name in a header. The header is
// believed only if the connection comes from the address of that proxy, and if it carries the secret of the proxy where
// one is configured. From any other sender, the header means nothing.

import { createHash, timingSafeEqual } from 'node:crypto';
import { BlockList, isIP } from 'node:net';

import { ConfigurationError, shown } from '../core/errors.js';
import { checkOptions, list, optional, refuse, text } from '../core/options.js';
import { scopes } from '../features/tokens/database.js';
import type { Access, Scope } from '../features/tokens/database.js';
import { HttpProblem } from './route.js';

export type SingleSignOnOptions = {
  /** The addresses of the proxies whose headers are believed, such as `10.0.0.7` or `10.0.0.0/24`. */
  proxies: readonly string[];
  /** The header with the name of the user. The proxy must replace what clients send in it. Default `x-forwarded-user`. */
  userHeader?: string;
  /** The header with the groups of the user, separated by commas. Default: none. */
  groupsHeader?: string;
  /** What the members of each group may do; `*` is every user who is signed on. The highest scope counts. */
  scopes: Readonly<Record<string, Scope>>;
  /** A secret that the proxy sends in the header `waybill-proxy-secret`. Needed if other processes can connect from the address of the proxy, as on loopback. */
  secret?: string;
};

export type SingleSignOn = ReturnType<typeof resolveSingleSignOn>;

/** In the scope table: every user whom the proxy has authenticated. */
const allUsers = '*';
const secretHeader = 'waybill-proxy-secret';
const longestName = 200;

/** Headers with another meaning. */
const taken = new Set(['authorization', 'cookie', 'host', 'origin', secretHeader]);

function headerName(name: string, value: unknown): string {
  const given = typeof value === 'string' ? value.toLowerCase() : '';
  if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(given) || taken.has(given))
    refuse(name, value, 'give the name of a header, such as x-forwarded-user');
  return given;
}

function network(name: string, value: unknown): string {
  const [, address = '', bits] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(String(value)) ?? [];
  const version = isIP(address);
  if (version === 0 || Number(bits ?? 0) > (version === 4 ? 32 : 128))
    refuse(name, value, 'give an address such as 10.0.0.7, or a network such as 10.0.0.0/24');
  if (Number(bits) === 0)
    refuse(name, value, 'give the network of the proxy: this one has every address');
  return String(value);
}

function scopeByGroup(name: string, value: unknown): ReadonlyMap<string, Scope> {
  if (typeof value !== 'object' || value === null || Object.keys(value).length === 0)
    refuse(name, value, "give a scope for each group, such as { support: 'operate', '*': 'read' }");
  const entries = Object.entries(value as Record<string, unknown>).map(([group, given]) => {
    const scope = scopes.find((each) => each === given);
    if (group === '' || group !== group.trim() || group.includes(','))
      throw new ConfigurationError(
        `${name} has the group ${shown(group)}: a group has a name without commas and without spaces around it, or is * for all users`,
      );
    return [
      group,
      scope ?? refuse(`${name}[${shown(group)}]`, given, `give ${scopes.join(', ')}`),
    ] as const;
  });
  return new Map(entries);
}

export function resolveSingleSignOn(options: SingleSignOnOptions) {
  const where = 'server.singleSignOn';
  const checked = checkOptions(where, options, {
    proxies: list(network, { min: 1, max: 100 }),
    userHeader: (name, value) => headerName(name, value ?? 'x-forwarded-user'),
    groupsHeader: optional(headerName),
    scopes: scopeByGroup,
    secret: optional(text({ pattern: /^[\u0021-\u007e]{16,512}$/, meaning: secretMeaning })),
  });
  if (checked.groupsHeader === checked.userHeader)
    throw new ConfigurationError(`${where}.groupsHeader is userHeader too: give another header`);
  const groups = [...checked.scopes.keys()].filter((group) => group !== allUsers);
  if (checked.groupsHeader === undefined && groups.length > 0)
    throw new ConfigurationError(
      `${where}.scopes has the group ${shown(groups[0])}, and groupsHeader is not set: set it, or use * only`,
    );
  const proxies = new BlockList();
  for (const each of checked.proxies) {
    const [address = '', bits] = each.split('/');
    const family = isIP(address) === 4 ? 'ipv4' : 'ipv6';
    if (bits === undefined) proxies.addAddress(address, family);
    else proxies.addSubnet(address, Number(bits), family);
  }
  return { ...checked, proxies };
}

const secretMeaning = 'a secret of 16 to 512 ASCII characters without spaces';

/** The headers of a request, each with all its values. */
type Headers = Readonly<Record<string, readonly string[] | undefined>>;

/** Whether the request comes from the proxy. */
function isFromProxy(
  headers: Headers,
  address: string,
  { proxies, secret }: SingleSignOn,
): boolean {
  if (isIP(address) === 0 || !proxies.check(address, isIP(address) === 4 ? 'ipv4' : 'ipv6'))
    return false;
  return secret === undefined || isSame(oneOf(headers, secretHeader), secret);
}

/** The name of the user whom the proxy has authenticated; undefined if the request does not come from it, or names no user. */
export function nameOfUser(
  headers: Headers,
  address: string,
  singleSignOn: SingleSignOn,
): string | undefined {
  if (!isFromProxy(headers, address, singleSignOn)) return undefined;
  const { userHeader } = singleSignOn;
  const user = oneOf(headers, userHeader);
  if (user === '') return undefined;
  if (user.includes(',')) throw new HttpProblem(403, `${userHeader} has a comma: send one name`);
  if (user.length > longestName)
    throw new HttpProblem(403, `${userHeader} is too long: send at most ${longestName} characters`);
  return user;
}

/** The access of that user; undefined if there is none. */
export function signedOn(
  headers: Headers,
  address: string,
  singleSignOn: SingleSignOn,
): Access | undefined {
  const user = nameOfUser(headers, address, singleSignOn);
  if (user === undefined) return undefined;
  const { groupsHeader, scopes: byGroup } = singleSignOn;
  const groups = groupsHeader === undefined ? [] : oneOf(headers, groupsHeader).split(',');
  const found = [allUsers, ...groups].map((group) => byGroup.get(group.trim()));
  const scope = scopes.findLast((each) => found.includes(each));
  if (scope === undefined)
    throw new HttpProblem(403, `${user} is in no group that may use this server`);
  return { name: user, scope, tenantId: null, forEndpoints: false, signedOn: true };
}

/** The value of a header that the proxy sends once. A second one would be that of the client. */
function oneOf(headers: Headers, name: string): string {
  const [value = '', ...others] = headers[name] ?? [];
  if (others.length > 0)
    throw new HttpProblem(403, `${name} was sent twice: the proxy must replace what clients send`);
  const plain = readable(value).trim();
  if (/\p{C}/u.test(plain))
    throw new HttpProblem(403, `${name} has control characters: the proxy must send plain text`);
  return plain;
}

/** Node reads headers as latin1, and proxies send UTF-8. */
function readable(value: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(value, 'latin1'));
  } catch {
    return value;
  }
}

/** In the same time for every text, so that a secret cannot be guessed by its parts. */
function isSame(given: string, expected: string): boolean {
  const hash = (value: string): Buffer => createHash('sha256').update(value).digest();
  return timingSafeEqual(hash(given), hash(expected));
}
