// The command for curl that the page copies: a shell passes exactly the shown request to curl.

import { spawnSync } from 'node:child_process';

import { expect, it } from 'vitest';

import { curlOf } from '../../dashboard/src/curl.js';

/** The arguments that curl gets when a shell runs the command. */
function argumentsOf(command: string): string[] {
  const script = `curl() { for each in "$@"; do printf '%s\\0' "$each"; done; }\n${command}`;
  const { stdout, stderr, status } = spawnSync('sh', ['-c', script], { encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
  return stdout.split('\0').slice(0, -1);
}

it('W5 a request is copied as a command that a shell reads as it was sent', () => {
  const body = `{"name": "O'Hara $HOME \`id\` \\\\ \\"x\\"", "lines": "a\nb"}`;
  const command = curlOf({
    method: 'PUT',
    url: 'https://crm.example.com/in?token=[hidden]',
    headers: [
      { name: 'content-type', value: 'application/json' },
      { name: 'x-note', value: `it's "so"; $(rm)` },
    ],
    body,
    bodyBytes: body.length,
    hasHiddenHeaders: false,
  });
  expect(argumentsOf(command)).toEqual([
    '--globoff',
    '--request',
    'PUT',
    'https://crm.example.com/in?token=[hidden]',
    '--header',
    'content-type: application/json',
    '--header',
    `x-note: it's "so"; $(rm)`,
    '--data-raw',
    body,
  ]);
});
