// API client of the page and of the portal. An error response becomes an error with the server's text. The page uses the
// cookie of its login; the portal sends a token.

const api = new URL('api/', document.baseURI);

export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Whether the server or its database does not answer: the same request can succeed later. */
export function isOutage(error: unknown): boolean {
  return !(error instanceof ApiError) || error.status === 0 || error.status >= 500;
}

/** How requests are authenticated. */
export type Credentials = {
  /** The fields of a request; called for each one. */
  of(): Pick<RequestInit, 'credentials' | 'headers'>;
  /** Called after a 401. True: there are new ones, and the request is sent again. */
  refused(path: string): Promise<boolean>;
  /** Called with the position of a change. A request with it is answered by a replica only if it has the change. */
  changed?(position: string): void;
};

let onLoggedOut: () => void = () => undefined;

/** The listener shows the login. The caller of `session` handles a refusal itself. */
export function whenLoggedOut(tell: () => void): void {
  onLoggedOut = tell;
}

let credentials: Credentials = {
  of: () => ({ credentials: 'same-origin' }),
  refused(path) {
    if (path !== 'session') onLoggedOut();
    return Promise.resolve(false);
  },
};

export function authenticateWith(others: Credentials): void {
  credentials = others;
}

export function apiAddress(path: string): string {
  return new URL(path, api).href;
}

async function ask<T>(
  method: string,
  path: string,
  body?: object,
  signal?: AbortSignal,
  refresh = false,
) {
  let response = await send(method, path, body, signal, refresh);
  if (response.status === 401 && (await credentials.refused(path)))
    response = await send(method, path, body, signal, refresh);
  const answer: unknown = await response.json().catch(() => undefined);
  if (response.ok) return answer as T;
  const { error } = (answer ?? {}) as { error?: unknown };
  throw new ApiError(
    response.status,
    typeof error === 'string' ? error : `the server answered ${response.status}`,
  );
}

async function send(
  method: string,
  path: string,
  body: object | undefined,
  signal: AbortSignal | undefined,
  refresh: boolean,
): Promise<Response> {
  const { headers, ...others } = credentials.of();
  try {
    const response = await fetch(new URL(path, api), {
      method,
      ...others,
      headers: {
        ...(headers as Record<string, string>),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(refresh && { 'waybill-refresh': '1' }),
      },
      ...(signal !== undefined && { signal }),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const position = response.headers.get('waybill-position');
    if (position !== null) credentials.changed?.(position);
    return response;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, 'the server cannot be reached');
  }
}

/** `refresh`: the page asks by itself, not its user. A relay that is asleep refuses it, so that an open page keeps no database awake. */
export async function get<T>(
  path: string,
  signal?: AbortSignal,
  { refresh = false }: { refresh?: boolean } = {},
): Promise<T> {
  return ask<T>('GET', path, undefined, signal, refresh);
}

export async function post<T>(path: string, body: object = {}): Promise<T> {
  return ask<T>('POST', path, body);
}

export async function patch<T>(path: string, body: object): Promise<T> {
  return ask<T>('PATCH', path, body);
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
