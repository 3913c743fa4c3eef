// A request as a command for curl. Hidden values are in it as they are shown, for the user to replace.

import type { SentRequest } from '../../src/destinations/sent-request.js';

export function curlOf({ method, url, headers, body }: SentRequest): string {
  // curl reads brackets in an address as a range
  const options = url.includes('[') ? ['--globoff'] : [];
  return [
    ['curl', ...options, '--request', method, quoted(url)].join(' '),
    ...headers.map(({ name, value }) => `--header ${quoted(`${name}: ${value}`)}`),
    ...(body === null ? [] : [`--data-raw ${quoted(body)}`]),
  ].join(' \\\n  ');
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
