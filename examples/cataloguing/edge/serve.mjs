// Serves one piece of work as an edge function under Deno: a POST with the service's key runs it, and the answer is its
// report.

import { createHash, timingSafeEqual } from 'node:crypto';

const hash = (text) => createHash('sha256').update(text).digest();

/** @param {() => Promise<object>} work */
export function serve(work) {
  const key = Deno.env.get('SERVICE_KEY') ?? '';
  if (key.length < 16)
    throw new Error('SERVICE_KEY has fewer than 16 characters: set it to a random secret');
  const answer = async (request) => {
    const [, given = ''] =
      /^Bearer +(\S+)$/i.exec(request.headers.get('authorization') ?? '') ?? [];
    if (!timingSafeEqual(hash(given), hash(key)))
      return Response.json({ error: 'the key is missing or wrong' }, { status: 401 });
    if (request.method !== 'POST') return Response.json({ error: 'send a POST' }, { status: 405 });
    try {
      return Response.json(await work());
    } catch (error) {
      return Response.json({ error: error.message }, { status: 503 });
    }
  };
  // a platform for edge functions chooses the port itself
  const port = Deno.env.get('PORT');
  Deno.serve(port === undefined ? {} : { hostname: '127.0.0.1', port: Number(port) }, answer);
}
