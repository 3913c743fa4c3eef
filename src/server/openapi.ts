// Describes the API in OpenAPI 3.1, generated from the routes.

import { version } from '../core/version.js';
import type { Parameter, Route } from './route.js';

const scopeWords = {
  read: 'scope read',
  operate: 'scope operate',
  admin: 'scope admin',
};

export function describeApi(routes: readonly Route[]): Record<string, unknown> {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    paths[route.path] = {
      ...paths[route.path],
      [route.method.toLowerCase()]: describeRoute(route),
    };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Waybill', version, license: { name: 'MIT', identifier: 'MIT' } },
    components: {
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer' },
        login: { type: 'apiKey', in: 'cookie', name: 'waybill_session' },
      },
      parameters: {
        IdempotencyKey: {
          name: 'Idempotency-Key',
          in: 'header',
          required: false,
          description:
            'The client makes a new key for each request, such as a UUID, and sends the same one when it repeats the request: for a day, it then gets the same answer, and nothing is done twice.',
          schema: { type: 'string', minLength: 1, maxLength: 255 },
        },
      },
      schemas: {
        Problem: {
          type: 'object',
          required: ['error'],
          properties: { error: { type: 'string', description: 'what is wrong, and what to do' } },
        },
      },
    },
    security: [{ token: [] }, { login: [] }],
    paths,
  };
}

function describeRoute(route: Route): object {
  const {
    method,
    path,
    scope,
    forTenants,
    forTenantTokens,
    takesKey,
    summary,
    returns,
    errors = {},
    parameters,
  } = route;
  const entries = Object.entries(parameters);
  const inBody = entries.filter(([, { in: place }]) => place === 'body');
  return {
    operationId: operationId(method, path),
    summary,
    description: `Needs ${scopeWords[scope]}${forTenants ? `; a token of one tenant${forTenantTokens ? ' and a tenant token see' : ' sees'} only that tenant` : '; not for tokens of one tenant'}.`,
    parameters: [
      ...entries
        .filter(([, { in: place }]) => place !== 'body')
        .map(([name, { in: place, required, description, schema }]) => ({
          name,
          in: place,
          required,
          description,
          schema,
        })),
      ...(takesKey ? [{ $ref: '#/components/parameters/IdempotencyKey' }] : []),
    ],
    ...(inBody.length > 0 && { requestBody: describeBody(inBody) }),
    responses: {
      200: {
        description: returns,
        content: { 'application/json': { schema: { type: 'object' } } },
      },
      ...(takesKey && { 422: problem('the Idempotency-Key was used for another request') }),
      ...Object.fromEntries(
        Object.entries(errors).map(([status, description]) => [status, problem(description)]),
      ),
      default: problem('refused, with the reason'),
    },
  };
}

function problem(description: string): object {
  return {
    description,
    content: { 'application/json': { schema: { $ref: '#/components/schemas/Problem' } } },
  };
}

function describeBody(parameters: readonly (readonly [string, Parameter])[]): object {
  return {
    content: {
      'application/json': {
        schema: {
          type: 'object',
          additionalProperties: false,
          required: parameters.filter(([, { required }]) => required).map(([name]) => name),
          properties: Object.fromEntries(
            parameters.map(([name, { schema, description }]) => [name, { ...schema, description }]),
          ),
        },
      },
    },
  };
}

function operationId(method: string, path: string): string {
  const words = path.replace('/api/', '').split(/[/{}-]+/);
  return [method.toLowerCase(), ...words.filter((part) => part !== '')]
    .map((part, index) => (index === 0 ? part : part.charAt(0).toUpperCase() + part.slice(1)))
    .join('');
}
