// Idempotency keys: a request with the header Idempotency-Key can be repeated, and is done once. The key, the changes
// and the answer are one transaction. After a crash, or a lost answer, the client repeats the request: either nothing
// was done, or the kept answer is returned. Only successful answers are kept. They are sealed with WAYBILL_SECRET_KEY,
// because some of them have secrets.

import { createHash } from 'node:crypto';

import type { Context } from 'hono';

import { errorText, SealedSecretError } from '../core/errors.js';
import { openSealed, seal } from '../core/sealed-secret.js';
import type { SecretKey } from '../core/sealed-secret.js';
import { secretKeys } from '../core/secret-keys.js';
import { beginRequest, keepAnswer } from '../features/idempotency/database.js';
import { actorOf } from './access.js';
import type { Access } from './access.js';
import { HttpProblem } from './route.js';
import type { Route, RouteRequest } from './route.js';

const header = 'idempotency-key';
/** Response header of an answer that was kept. */
const repeatedHeader = 'idempotency-replayed';
const lockTimeout = '55P03';

type Parts = Pick<RouteRequest, 'database' | 'afterwards'>;

/** Answers a request; with a key, in a transaction, and once for each key. */
export async function answerOnce(
  context: Context,
  route: Route,
  { database, access, values }: Pick<RouteRequest, 'database' | 'access' | 'values'>,
  answer: (parts: Parts) => Promise<unknown>,
): Promise<unknown> {
  const given = context.req.header(header);
  if (given === undefined || route.method !== 'POST')
    return answer({ database, afterwards: (work) => work() });
  if (!route.takesKey)
    throw new HttpProblem(400, `${route.path} takes no Idempotency-Key: leave it out`);
  if (!/^[\u0021-\u007e]{1,255}$/.test(given))
    throw new HttpProblem(400, 'Idempotency-Key is malformed: give 1 to 255 ASCII characters');
  const keys = sealingKeys(access);
  const key = createHash('sha256').update(given).digest();
  const purpose = `answer to ${key.toString('hex')}`;
  const request = fingerprintOf(context, values);
  const later: (() => void)[] = [];
  const actor = actorOf({ access });
  const { text, isNew } = await database.transaction('answer once', async (inside) => {
    const kept = await begin(() => beginRequest(inside, actor, key));
    if (kept !== null) return { text: open(keys, purpose, kept), isNew: false };
    const result = await answer({ database: inside, afterwards: (work) => later.push(work) });
    const fresh = JSON.stringify({ request, answer: result });
    await keepAnswer(inside, actor, key, seal(keys, purpose, fresh));
    return { text: fresh, isNew: true };
  });
  for (const work of later) work();
  const found = JSON.parse(text) as { request: string; answer: unknown };
  if (found.request !== request)
    throw new HttpProblem(
      422,
      'this Idempotency-Key was used for another request: make a new key for each request',
    );
  if (!isNew) context.header(repeatedHeader, 'true');
  return found.answer;
}

async function begin(work: () => Promise<string | null>): Promise<string | null> {
  try {
    return await work();
  } catch (error) {
    if ((error as { code?: unknown }).code !== lockTimeout) throw error;
    throw new HttpProblem(
      409,
      'a request with this Idempotency-Key is still being handled: repeat it in a moment',
    );
  }
}

function sealingKeys(access: Access): readonly SecretKey[] {
  try {
    return secretKeys();
  } catch (error) {
    const reason = access.tenantId === null ? `: ${errorText(error)}` : '';
    throw new HttpProblem(
      503,
      `the server cannot seal answers, which an Idempotency-Key needs${reason}`,
    );
  }
}

function open(keys: readonly SecretKey[], purpose: string, sealed: string): string {
  try {
    return openSealed(keys, purpose, sealed);
  } catch (error) {
    if (!(error instanceof SealedSecretError)) throw error;
    throw new HttpProblem(
      409,
      'the request was done, but its answer was sealed with a key that this server does not have',
      { cause: error },
    );
  }
}

/** Equal for the same request, whatever the order of its fields. It is kept sealed, because the body may have secrets. */
function fingerprintOf(context: Context, values: RouteRequest['values']): string {
  const { method, path } = context.req;
  const text = JSON.stringify([method, path, values], (_name, value: unknown) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : value,
  );
  return createHash('sha256').update(text).digest('hex');
}
