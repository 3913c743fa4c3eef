// HTTP routes of endpoints: lists, adds, changes, tests and removes them. Only adding and rotating return a secret, once.
// For a token that is limited to a tenant, endpoints of other tenants and those of all tenants do not exist.

import { createEndpoints } from './endpoints.js';
import { parseLabels } from './labels.js';
import { recoverAll } from './recovery.js';
import type { EndpointReference, Endpoints } from './endpoints.js';
import type { EndpointChanges, NewEndpoint } from './description.js';
import {
  endpointStates,
  findEndpoint,
  listEndpoints,
  listProblemsFirst,
  readListedEndpoint,
} from './listing.js';
import type { EndpointFilter, FoundEndpoint, ListedEndpoint } from './listing.js';
import { endpointOrders } from './listing-order.js';
import { secretKeys } from '../../core/secret-keys.js';
import type { EndpointOptions } from './options.js';
import { errorText } from '../../core/errors.js';
import { sendTest } from '../../database/definitions.js';
import { HttpProblem, pageParameters, parameter, text, time, word } from '../../server/route.js';
import type { Parameter, Route, RouteRequest } from '../../server/route.js';
import { actorOf } from '../../server/access.js';

export const name = text({ in: 'path', description: 'the endpoint' }, 63);
export const unknown = { 404: 'no such endpoint' } as const;

const secret = field(
  { type: 'string', maxLength: 1024 },
  'a secret that the receiver brings: `whsec_…` or `whsk_…`; generated if not given',
);

/** The fields that can be changed. */
const changeable = {
  namespace: field(
    { type: ['string', 'null'], maxLength: 255 },
    'only of this namespace; null: all',
  ),
  description: field({ type: ['string', 'null'], maxLength: 250 }, 'a description for operators'),
  body: field(
    {
      type: ['string', 'null'],
      enum: ['payload', 'envelope', 'cloudevents', 'cloudevents-structured', null],
    },
    'which parts of its message a request carries; null: as in the configuration of the relays',
  ),
  headers: field(
    { type: ['object', 'null'], additionalProperties: { type: 'string' }, maxProperties: 20 },
    'headers of every request; they are sealed like the secret and never returned',
  ),
  auth: field(
    {
      type: ['object', 'null'],
      required: ['type'],
      properties: { type: { type: 'string', enum: ['basic', 'oauth2'] } },
      additionalProperties: { type: 'string' },
      maxProperties: 7,
    },
    'login of every request: `basic` with `user` and `password`, or `oauth2` with `tokenUrl`, `clientId`, `clientSecret`, `scope`, `audience` and `sendClientIn`. It is sealed like the secret; only its `type` is returned',
  ),
  query: field(
    { type: ['object', 'null'], additionalProperties: { type: 'string' }, maxProperties: 20 },
    'parameters that are added to the address of every request; sealed and never returned',
  ),
  expireAfterMs: field(
    { type: ['integer', 'null'], minimum: 1000, maximum: 31_536_000_000 },
    'older messages are not sent; null: all are',
  ),
  rate: field(
    {
      type: ['object', 'null'],
      properties: { perSecond: { type: 'number' }, burst: { type: 'integer' } },
      required: ['perSecond'],
      additionalProperties: false,
    },
    'the most messages per second; null: as in the configuration of the relays',
  ),
  concurrency: field(
    { type: ['integer', 'null'], minimum: 1, maximum: 1000 },
    'deliveries in flight at once, per relay, up to `endpoints.maxConcurrency`; null: as in the configuration of the relays',
  ),
  timeoutMs: field(
    { type: ['integer', 'null'], minimum: 1000, maximum: 3_600_000 },
    'a delivery that takes longer is aborted, up to `endpoints.maxTimeoutMs`; null: as in the configuration of the relays',
  ),
  labels: field(
    { type: ['object', 'null'], additionalProperties: { type: 'string' }, maxProperties: 20 },
    'names and texts by which operators find it; null: none',
  ),
  filter: field(
    { type: ['object', 'null'], maxProperties: 20 },
    'only messages with such a payload, such as `{"amount": {"gte": 100}}`; null: all',
  ),
};
const url = { type: 'string', format: 'uri', maxLength: 2048 };
const topics = { type: 'array', items: { type: 'string' }, minItems: 1, maxItems: 100 };
const topicsWords =
  'topics: `user.registered`, `user.*` for all topics below `user`, or `*` for all';

export function endpointRoutes({ allowedNetworks }: EndpointOptions): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/api/endpoints',
      scope: 'read',
      forTenants: true,
      summary:
        'Endpoints of customers without secrets, in one of five orders. A page with a filter may be short: continue with `next`. The counts `waiting` and `dead` stop at 1,000; the orders `waiting` and `dead` count the 20,000 oldest deliveries and the 20,000 newest dead letters of all destinations.',
      returns: '`endpoints`, and `next` if there are more',
      parameters: {
        tenantId: text({ description: 'of this tenant' }),
        state: word(
          {
            description:
              'in this state; `failing` is enabled, and has had no success since `failingSince`; `healthy` is enabled and not failing',
          },
          endpointStates,
        ),
        search: text({ description: 'whose name, address or tenant begins with this text' }, 2048),
        labels: text({ description: 'with these labels, such as `plan:gold,region:eu`' }, 2048),
        order: word(
          {
            description:
              '`newest` first; `problems` first: failing ones, then disabled ones; by `name`; or those with the most `waiting` or `dead` first, then the others by name; `newest` if not given',
          },
          endpointOrders,
        ),
        ...pageParameters,
        next: text({ description: '`next` of the previous page' }, 80),
      },
      async answer({ database, access, values }) {
        const {
          limit = 50,
          next,
          labels,
          order,
          ...given
        } = values as Omit<EndpointFilter, 'labels'> & Page & { labels?: string };
        const filter: EndpointFilter = {
          ...given,
          ...(labels !== undefined && { labels: parseLabels('labels', labels) }),
        };
        if (access.tenantId !== null) filter.tenantId = access.tenantId;
        const page = { limit, ...(next !== undefined && { next }) };
        return order === 'problems'
          ? listProblemsFirst(database, filter, page)
          : listEndpoints(database, filter, { ...page, ...(order !== undefined && { order }) });
      },
    },
    {
      method: 'GET',
      path: '/api/endpoints/{name}',
      scope: 'read',
      forTenants: true,
      summary: 'One endpoint, without secrets. The counts `waiting` and `dead` stop at 100,000.',
      returns: 'the endpoint, with its `fingerprints`, whether it is `enabled`, and why not',
      errors: unknown,
      parameters: { name },
      answer: shownEndpoint,
    },
    {
      method: 'POST',
      path: '/api/endpoints',
      scope: 'operate',
      forTenants: true,
      summary: 'Adds an endpoint, and returns its secret, which is never shown again.',
      returns: '`name`, `secret` and `fingerprint`',
      errors: {
        409: 'the name is taken, or the tenant has as many endpoints as it may',
        503: 'the server has no key for secrets',
      },
      parameters: {
        url: field(url, 'the address, http:// or https://', true),
        topics: field(topics, topicsWords, true),
        tenantId: field(
          { type: ['string', 'null'], maxLength: 255 },
          'only messages of this tenant; null: of all tenants. Required, except for a token of one tenant',
        ),
        name: field(
          { type: 'string', maxLength: 63 },
          'its name; generated if not given. Not for tokens of one tenant',
        ),
        ...changeable,
        secret,
      },
      async answer(request) {
        const given = tenantOfNew(request, request.values as NewEndpoint);
        return changing(request, ({ endpoints, client }) => {
          requireKey(request);
          return endpoints.add(client, given);
        });
      },
    },
    {
      method: 'PATCH',
      path: '/api/endpoints/{name}',
      scope: 'operate',
      forTenants: true,
      summary: 'Changes the fields that are given. Pending deliveries go to the new address.',
      returns: 'the endpoint',
      errors: {
        ...unknown,
        503: 'the server has no key for secrets, and headers, a query or a login are given',
      },
      parameters: {
        name,
        url: field(url, 'the new address'),
        topics: field(topics, topicsWords),
        ...changeable,
      },
      async answer(request) {
        const { name: _name, ...changes } = request.values as EndpointChanges & { name: string };
        await changing(request, async ({ endpoints, client, which }) => {
          if (changes.headers || changes.query || changes.auth)
            await requireEndpointAndKey(request);
          return endpoints.change(client, which, changes);
        });
        return shownEndpoint(request);
      },
    },
    {
      method: 'POST',
      path: '/api/endpoints/{name}/rotate',
      scope: 'operate',
      forTenants: true,
      summary:
        'Adds a secret, and returns it once. The older ones sign beside it until they are retired; at most 5 sign at once.',
      returns: '`name`, `secret` and `fingerprint`',
      errors: { ...unknown, 503: 'the server has no key for secrets' },
      parameters: { name, secret },
      async answer(request) {
        const { secret: given } = request.values as { secret?: string };
        return changing(request, async ({ endpoints, client, which }) => {
          await requireEndpointAndKey(request);
          return endpoints.rotate(client, which, { ...(given !== undefined && { secret: given }) });
        });
      },
    },
    {
      method: 'POST',
      path: '/api/endpoints/{name}/retire',
      scope: 'operate',
      forTenants: true,
      summary: 'Retires all secrets but the newest.',
      returns: '`retired`, the number of secrets',
      errors: unknown,
      parameters: { name },
      answer: (request) =>
        changing(request, async ({ endpoints, client, which }) => ({
          retired: await endpoints.retireOldSecrets(client, which),
        })),
    },
    {
      method: 'POST',
      path: '/api/endpoints/{name}/enable',
      scope: 'operate',
      forTenants: true,
      summary: 'Enables an endpoint: its deliveries go on, the oldest first.',
      returns: 'the endpoint',
      errors: unknown,
      parameters: { name },
      async answer(request) {
        await changing(request, ({ endpoints, client, which }) => endpoints.enable(client, which));
        return shownEndpoint(request);
      },
    },
    {
      method: 'POST',
      path: '/api/endpoints/{name}/disable',
      scope: 'operate',
      forTenants: true,
      summary: 'Disables an endpoint: its messages wait until it is enabled.',
      returns: 'the endpoint',
      errors: unknown,
      parameters: { name, reason: text({ in: 'body', description: 'the reason, for the record' }) },
      async answer(request) {
        const { reason } = request.values as { reason?: string };
        await changing(request, ({ endpoints, client, which }) =>
          endpoints.disable(client, which, { ...(reason !== undefined && { reason }) }),
        );
        return shownEndpoint(request);
      },
    },
    {
      method: 'POST',
      path: '/api/endpoints/{name}/recover',
      scope: 'operate',
      forTenants: true,
      summary:
        'Enables an endpoint, and sends again what has failed since its first failure: dead letters, and deliveries that wait for a retry.',
      returns: '`since`, and `resent`, the number of deliveries',
      errors: unknown,
      parameters: {
        name,
        since: time({
          in: 'body',
          description:
            'died at or after; the first failure since the last success if not given, which must then exist',
        }),
      },
      async answer(request) {
        const { since } = request.values as { since?: Date };
        return changing(request, ({ endpoints, client, which }) =>
          recoverAll(endpoints, client, which, since),
        );
      },
    },
    {
      method: 'POST',
      path: '/api/endpoints/{name}/test',
      scope: 'operate',
      forTenants: true,
      summary:
        'Sends a test message with the topic `waybill.test` to this endpoint; it is delivered and recorded like any other.',
      returns: '`messageId` of the test message',
      errors: { ...unknown, 429: 'the tenant has sent 60 tests within a minute' },
      parameters: { name },
      async answer(request) {
        const endpoint = await endpointOf(request);
        return { messageId: await sendTest(request.database, endpoint.name, actorOf(request)) };
      },
    },
    {
      method: 'DELETE',
      path: '/api/endpoints/{name}',
      scope: 'operate',
      forTenants: true,
      summary:
        'Removes an endpoint and its secrets. Pending deliveries stay until they are moved or discarded in SQL.',
      returns: '`name`, and whether deliveries are still `waiting`',
      errors: unknown,
      parameters: { name },
      answer: (request) =>
        changing(request, async ({ endpoints, client, which }) => ({
          name: which.name,
          waiting: await endpoints.remove(client, which),
        })),
    },
  ];

  /** Runs a change as the client of the request, and maps the errors of the database that only endpoints have. */
  async function changing<T>(
    request: RouteRequest,
    change: (given: {
      endpoints: Endpoints;
      client: Client;
      which: EndpointReference;
    }) => Promise<T>,
  ): Promise<T> {
    const { database } = request;
    const client = {
      query: async (sql: string, values: unknown[]) => ({
        rows: await database.query('endpoints', sql, values),
      }),
    };
    const endpoints = createEndpoints({
      schema: database.options.schema,
      actor: actorOf(request),
      ...(allowedNetworks && { allowedNetworks }),
    });
    try {
      return await change({ endpoints, client, which: referenceOf(request) });
    } catch (error) {
      const { code } = error as { code?: unknown };
      if (code === taken || code === tooMany) throw new HttpProblem(409, errorText(error));
      throw error;
    }
  }
}

type Client = Parameters<Endpoints['add']>[0];
type Page = { limit?: number; next?: string; order?: (typeof endpointOrders)[number] };

/** PostgreSQL's codes of add_endpoint: the name is taken, the tenant has too many endpoints. */
const taken = '23505';
const tooMany = '54000';

/** A field of an endpoint: description.ts checks it, for the library and the command line too. */
function field(schema: Record<string, unknown>, description: string, required?: true): Parameter {
  const place = { in: 'body' as const, description, ...(required && { required }) };
  return parameter(place, schema, (_name, value) => value);
}

function referenceOf({ access, values }: RouteRequest): EndpointReference {
  return {
    name: values['name'] as string,
    ...(access.tenantId !== null && { tenantId: access.tenantId }),
  };
}

/** The endpoint that the path names; 404 if it does not exist for this client. */
export async function endpointOf(request: RouteRequest): Promise<FoundEndpoint> {
  const which = referenceOf(request);
  return (await findEndpoint(request.database, which)) ?? refuseUnknown(which);
}

/** The same with its settings and counts, which cost more. */
export async function shownEndpoint(request: RouteRequest): Promise<ListedEndpoint> {
  const which = referenceOf(request);
  return (await readListedEndpoint(request.database, which)) ?? refuseUnknown(which);
}

function refuseUnknown(which: EndpointReference): never {
  throw new HttpProblem(
    404,
    `there is no endpoint "${which.name}": GET /api/endpoints lists those that exist`,
  );
}

/** An unknown endpoint is an error even if the server has no key. */
async function requireEndpointAndKey(request: RouteRequest): Promise<void> {
  await endpointOf(request);
  requireKey(request);
}

/**
 * A token that is limited to a tenant adds endpoints of that tenant only. It chooses no name: names are unique over all
 * tenants, so a name that is taken would show that another tenant has it.
 */
function tenantOfNew({ access }: RouteRequest, given: NewEndpoint): NewEndpoint {
  if (access.tenantId === null) return given;
  if (given.name !== undefined)
    throw new HttpProblem(
      400,
      `name is not for a token of one tenant: leave it out, and a name is generated; use description to tell endpoints apart`,
    );
  return { ...given, tenantId: access.tenantId };
}

/** A missing key is an error of the server, not of the client. */
function requireKey({ access }: RouteRequest): void {
  try {
    secretKeys();
  } catch (error) {
    const reason = access.tenantId === null ? `: ${errorText(error)}` : '';
    throw new HttpProblem(503, `the server cannot seal secrets${reason}`, { cause: error });
  }
}
