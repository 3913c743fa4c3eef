// API client of the page. An error response becomes an error with the server's text. A 401 also calls the listener
// that shows the login, except for the path `session`, whose caller handles it.

const api = new URL('api/', document.baseURI);

export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

let onLoggedOut: () => void = () => undefined;

export function whenLoggedOut(tell: () => void): void {
  onLoggedOut = tell;
}

export function apiAddress(path: string): string {
  return new URL(path, api).href;
}

async function ask<T>(method: string, path: string, body?: object, signal?: AbortSignal) {
  let response: Response;
  try {
    response = await fetch(new URL(path, api), {
      method,
      credentials: 'same-origin',
      ...(signal !== undefined && { signal }),
      ...(body !== undefined && {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, 'the server cannot be reached');
  }
  const answer: unknown = await response.json().catch(() => undefined);
  if (response.ok) return answer as T;
  if (response.status === 401 && path !== 'session') onLoggedOut();
  const { error } = (answer ?? {}) as { error?: unknown };
  throw new ApiError(
    response.status,
    typeof error === 'string' ? error : `the server answered ${response.status}`,
  );
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return ask<T>('GET', path, undefined, signal);
}

export async function post<T>(path: string, body: object = {}): Promise<T> {
  return ask<T>('POST', path, body);
}

export async function remove<T>(path: string): Promise<T> {
  return ask<T>('DELETE', path);
}

/** `path?a=…`, without empty parameters. */
export function withQuery(path: string, query: Record<string, string | number | null | undefined>) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(
    given.flatMap(([name, value]) => (value === null ? [] : [[name, String(value)]])),
  ).toString();
  return text === '' ? path : `${path}?${text}`;
}
