// A small DNS server on a real socket. The test decides each answer anew, as the DNS server of an attacker can.

import { createSocket } from 'node:dgram';
import type { RemoteInfo } from 'node:dgram';
import { once } from 'node:events';
import { isIPv4 } from 'node:net';

import { onTestFinished } from 'vitest';

export type Question = { readonly name: string; readonly type: 'A' | 'AAAA' };
/** The addresses of the requested type, the number of a DNS error such as 2 for SERVFAIL, or no answer. */
export type Answer = readonly string[] | number | 'silence';

const types = { 1: 'A', 28: 'AAAA' } as const;

/** Returns its address in the form of `dnsServers`, and the names that it was asked for. */
export async function serveNames(
  answer: (question: Question) => Answer,
): Promise<{ server: string; asked: Question[] }> {
  const socket = createSocket('udp4');
  const asked: Question[] = [];
  socket.on('message', (query: Buffer, { port, address }: RemoteInfo) => {
    const { name, end } = readName(query);
    const type = types[query.readUInt16BE(end) as keyof typeof types];
    if (type === undefined) return;
    asked.push({ name, type });
    const given = answer({ name, type });
    if (given !== 'silence') socket.send(reply(query.subarray(0, end + 4), given), port, address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  onTestFinished(() => void socket.close());
  return { server: `127.0.0.1:${socket.address().port}`, asked };
}

/** The name in the question, and where it ends. */
function readName(query: Buffer): { name: string; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join('.').toLowerCase(), end: at + 1 };
}

function reply(query: Buffer, answer: readonly string[] | number): Buffer {
  const addresses = typeof answer === 'number' ? [] : answer;
  const head = Buffer.from(query.subarray(0, 12));
  head.writeUInt16BE(0x81_80 | (typeof answer === 'number' ? answer : 0), 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(addresses.length, 6);
  head.writeUInt32BE(0, 8);
  return Buffer.concat([head, query.subarray(12), ...addresses.map(record)]);
}

/** A TTL of zero, so that each lookup asks the server again. */
function record(address: string): Buffer {
  const data = isIPv4(address) ? Buffer.from(address.split('.').map(Number)) : bytes6(address);
  const head = Buffer.from([
    0xc0,
    0x0c,
    0,
    isIPv4(address) ? 1 : 28,
    0,
    1,
    0,
    0,
    0,
    0,
    0,
    data.length,
  ]);
  return Buffer.concat([head, data]);
}

function bytes6(address: string): Buffer {
  const [before = '', after] = address.split('::');
  const words = (text: string): string[] => (text === '' ? [] : text.split(':'));
  const [left, right] = [words(before), words(after ?? '')];
  const zeros = after === undefined ? [] : Array<string>(8 - left.length - right.length).fill('0');
  return Buffer.from(
    [...left, ...zeros, ...right].map((word) => word.padStart(4, '0')).join(''),
    'hex',
  );
}
