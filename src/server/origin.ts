// Option kind: the origin of a page that may show one of ours in a frame.

import { refuse } from '../core/options.js';

/** Pages that come over plain HTTP could be changed on their way, so they are allowed on this machine only. */
export function origin(name: string, value: unknown): string {
  const [, scheme, host = ''] =
    /^(https?):\/\/([a-z0-9.-]+|\[[0-9a-f:]+\])(?::\d+)?$/.exec(String(value)) ?? [];
  if (
    typeof value !== 'string' ||
    !URL.canParse(value) ||
    new URL(value).origin !== value ||
    !(scheme === 'https' || isLoopback(host))
  )
    refuse(name, value, 'give an origin such as https://www.example.com, without a path');
  return value;
}

export function isLoopback(host: string): boolean {
  return /^(127(\.\d+){3}|::1|\[::1\]|localhost)$/.test(host);
}
