// Generates the reference of the HTTP API from the routes of the server, which also make its OpenAPI description.

/** The sections of the core's routes, by the first word of the path. Features name their own. A route elsewhere fails. */
const parts = {
  messages: 'Messages',
  retrying: 'Messages',
  suggestions: 'Messages',
  tail: 'Messages',
  destinations: 'Destinations',
  overview: 'Status',
  health: 'Status',
  relays: 'Status',
  wake: 'Status',
  database: 'Status',
};

/** @typedef {import('../src/server/route.js').Route} Route */

/** @param {import('./docs.mjs').Load} load @returns {Promise<Record<string, string>>} */
export async function httpTables(load) {
  const { apiRoutes } = await load('server/app');
  const { Background } = await load('server/background');
  /** @type {Route[]} */
  const routes = apiRoutes(new Background({}));
  const titles = await featureTitles(load, new Background({}));
  const titleOf = (/** @type {Route} */ route) => titles.get(route.path) ?? partOf(route);
  const sections = [...new Set([...Object.values(parts), ...titles.values()])].map((title) => {
    const texts = routes.filter((route) => titleOf(route) === title).map(described);
    return `## ${title}\n\n${texts.join('\n\n')}`;
  });
  return { httpRoutes: sections.join('\n\n') };
}

/**
 * The section of each path of a feature.
 * @param {import('./docs.mjs').Load} load @param {unknown} background @returns {Promise<Map<string, string>>}
 */
async function featureTitles(load, background) {
  const { features } = await load('features/all');
  const titles = new Map();
  for (const { routes, section } of features) {
    const found = await routes?.();
    for (const { path } of typeof found === 'function' ? found(background, {}) : (found ?? []))
      titles.set(path, section);
  }
  return titles;
}

/** @param {Route} route */
function partOf({ path }) {
  const title = parts[path.split('/')[2]];
  if (title === undefined)
    throw new Error(
      `${path} has no section: features name one in feature.ts, the core in scripts/docs-http.mjs`,
    );
  return title;
}

/** @param {Route} route */
function described(route) {
  const { method, path, scope, summary, returns, errors, parameters } = route;
  const key = route.takesKey ? ' Takes an [`Idempotency-Key`](#idempotency-keys).' : '';
  const access = `Scope \`${scope}\`${tenantsOf(route)}.${key}`;
  const rows = Object.entries(parameters).map(
    ([name, parameter]) =>
      `| \`${name}\`${parameter.required ? ' (required)' : ''} | ${parameter.in} | ${kindOf(parameter.schema)} | ${parameter.description} |`,
  );
  const refusals = Object.entries(errors ?? {}).map(([status, why]) => `${status} (${why})`);
  return [
    `### ${method} ${path}`,
    summary,
    access,
    ...(rows.length > 0
      ? [['| parameter | in | value | meaning |', '|---|---|---|---|', ...rows].join('\n')]
      : []),
    `Returns ${returns}.${refusals.length > 0 ? ` Errors: ${refusals.join(', ')}.` : ''}`,
  ].join('\n\n');
}

/** @param {Route} route */
function tenantsOf({ forTenants, forTenantTokens }) {
  if (!forTenants) return '';
  return forTenantTokens
    ? '; also for tokens of one tenant, and tenant tokens'
    : '; also for tokens of one tenant';
}

/** @param {Record<string, any>} schema */
function kindOf(schema) {
  if (schema.enum)
    return schema.enum.map((/** @type {string | null} */ word) => `\`${word}\``).join(', ');
  if (schema.type === 'array')
    return `1 to ${number(schema.maxItems)} ${schema.items.format === 'uuid' ? 'UUIDs' : 'texts'}`;
  if (Array.isArray(schema.type)) return `${kindOf({ ...schema, type: schema.type[0] })}, or null`;
  if (schema.properties) return `object of \`${Object.keys(schema.properties).join('`, `')}\``;
  if (schema.type === 'object')
    return `object of up to ${number(schema.maxProperties)} ${schema.additionalProperties ? 'texts' : 'fields'}`;
  if (schema.format === 'uuid') return 'UUID';
  if (schema.format === 'date-time') return 'time, such as `2026-01-31T08:00:00Z`';
  if (schema.type === 'boolean') return '`true` or `false`';
  if (schema.type === 'string') return `text, up to ${number(schema.maxLength)} characters`;
  if (schema.type === undefined) return 'JSON';
  const kind = schema.type === 'integer' ? 'whole number' : 'number';
  return schema.maximum === Number.MAX_SAFE_INTEGER
    ? `${kind} from ${schema.minimum}`
    : `${kind}, ${number(schema.minimum)} to ${number(schema.maximum)}`;
}

/** @param {number} value */
function number(value) {
  return value.toLocaleString('en-US');
}
