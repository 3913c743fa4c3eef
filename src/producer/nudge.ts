// Nudge: a producer wakes a relay that may sleep, after a commit: the relay of this process, or another one by HTTP.
// Never throws: if the request is lost, the message waits until the relay's next scheduled look.

import { wakeSleepingRelays } from '../core/sleeping-relays.js';
import { checkOptions, integer, optional, refuse, text } from '../core/options.js';

export type WakeOptions = {
  /** The address of the route, such as `https://relay.example.com/api/wake`. Default: WAYBILL_WAKE_URL, or none. */
  url?: string;
  /** A token of the relay with the scope `operate`. Default: WAYBILL_WAKE_TOKEN, or none. */
  token?: string;
  /** How long the request may take. Default 2,000. */
  timeoutMs?: number;
};

export type ResolvedWakeOptions = ReturnType<typeof wakeKind>;

/** Checks the options. The environment is read at each call, because it may not be known yet. */
export function wakeKind(name: string, options: unknown) {
  return checkOptions(name, options as WakeOptions | undefined, {
    url: optional(httpAddress),
    token: optional(text({ meaning: 'a token of waybill tokens add' })),
    timeoutMs: integer({ min: 1, max: 60_000, default: 2000 }),
  });
}

/** True: a relay of this process is awake now, or the request was answered with success. */
export async function nudge(schema: string, options: ResolvedWakeOptions): Promise<boolean> {
  const hasOwnRelay = wakeSleepingRelays(schema);
  // not every runtime has `process`
  const environment = typeof process === 'undefined' ? undefined : process;
  const url = options.url ?? environment?.env['WAYBILL_WAKE_URL'];
  if (url === undefined || url === '') return hasOwnRelay;
  const token = options.token ?? environment?.env['WAYBILL_WAKE_TOKEN'];
  const request = new AbortController();
  const timer = setTimeout(() => request.abort(), options.timeoutMs);
  try {
    const { ok, body } = await fetch(url, {
      method: 'POST',
      redirect: 'error',
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      signal: request.signal,
    });
    // an answer that is not read keeps its connection, and the process
    await body?.cancel();
    return ok || hasOwnRelay;
  } catch {
    return hasOwnRelay;
  } finally {
    clearTimeout(timer);
  }
}

function httpAddress(name: string, value: unknown): string {
  if (typeof value === 'string' && URL.canParse(value) && /^https?:$/.test(new URL(value).protocol))
    return value;
  return refuse(name, value, 'give an address such as https://relay.example.com/api/wake');
}
