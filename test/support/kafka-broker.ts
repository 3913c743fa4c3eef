// A real Apache Kafka broker for tests and the bench: one process in KRaft mode, in a temporary folder, on free ports.
// It has one listener for clients behind a proxy, one for direct clients, one that requires a password, and on request
// one with TLS. It never outlives its parent: a small shell waits for the end of a pipe that only the parent holds
// open, and then kills it.

import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import os from 'node:os';
import path from 'node:path';

import type { Address } from '../contract/services/service.js';
import { brokerProperties, makeCertificate, scramArguments } from './kafka-properties.js';
import type { Cluster, Listeners } from './kafka-properties.js';
import { waitFor } from './wait.js';

const { jarsOf } = (await import(path.resolve('scripts/jars.mjs'))) as {
  jarsOf: (name: string) => string;
};

/** The class path: every jar of Kafka and its dependencies. */
export const kafkaClassPath = path.join(jarsOf('kafka'), '*');

const host = '127.0.0.1';
const startTimeoutMs = 60_000;

/** JVM options for a quick start: little compilation and little memory. */
const quickStart = [
  '-Xms128m',
  '-Xmx256m',
  '-XX:+UseSerialGC',
  '-XX:TieredStopAtLevel=1',
  '-Xshare:auto',
];

export type KafkaBroker = Listeners & {
  readonly cluster: Cluster;
  /** The certificate of the TLS listener; empty if there is no such listener. */
  readonly certificate: string;
  /** The file with the first records of a topic's first partition. */
  logFile(topic: string): string;
  kill(): Promise<void>;
  restart(): Promise<void>;
  stop(): Promise<void>;
};

/** The reason why Kafka cannot run here; null if it can. */
export function kafkaUnavailable(): string | null {
  if (spawnSync('java', ['-version']).status !== 0)
    return 'there is no java: install a JDK of version 17 or newer (Debian: default-jdk-headless)';
  if (!existsSync(jarsOf('kafka')))
    return 'there are no jars of Kafka: run node scripts/jars.mjs kafka (it needs Maven)';
  return null;
}

export type KafkaBrokerOptions = {
  /** The address that clients of `throughProxy` are told. */
  through?: Address;
  tls?: boolean;
  /** Joins the cluster of this broker as the second one. */
  beside?: KafkaBroker;
  /** JVM options instead of those for a quick start. */
  javaOptions?: readonly string[];
};

export async function startKafka(options: KafkaBrokerOptions = {}): Promise<KafkaBroker> {
  const { beside, javaOptions, tls = false } = options;
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-kafka-'));
  const [throughProxy, direct, withPassword, withTls, controller] = await freeAddresses();
  const listeners = { throughProxy, direct, withPassword, withTls };
  const cluster = beside?.cluster ?? { id: randomClusterId(), controller };
  const certificate = tls ? makeCertificate(directory, host) : '';
  const file = path.join(directory, 'server.properties');
  const through = options.through ?? throughProxy;
  const node = beside === undefined ? 1 : 2;
  writeFileSync(file, brokerProperties({ ...listeners, directory, node, cluster, through, tls }));
  await formatStorage(file, cluster.id, node === 1 ? scramArguments : []);

  const start = (): Promise<Running> =>
    run([...javaProgram('kafka.Kafka', javaOptions), file], `${file}.log`, direct);
  let running = await start();
  const kill = async (): Promise<void> => running.kill();
  return {
    ...listeners,
    cluster,
    certificate,
    logFile: (topic) => path.join(directory, 'log', `${topic}-0`, '00000000000000000000.log'),
    kill,
    restart: async () => void (running = await start()),
    async stop() {
      await kill();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function formatStorage(
  file: string,
  clusterId: string,
  more: readonly string[],
): Promise<void> {
  const program = javaProgram('kafka.tools.StorageTool');
  const format = spawn(
    'java',
    [...program, 'format', `--cluster-id=${clusterId}`, '-c', file, ...more],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  );
  let problem = '';
  format.stderr.setEncoding('utf8').on('data', (text: string) => (problem += text));
  const [code] = (await once(format, 'close')) as [number];
  if (code !== 0) throw new Error(`the storage of Kafka could not be formatted: ${problem}`);
}

function javaProgram(name: string, javaOptions: readonly string[] = quickStart): string[] {
  return [...javaOptions, '-cp', kafkaClassPath, name];
}

function randomClusterId(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('base64url');
}

type Running = { kill(): Promise<void> };

async function run(args: readonly string[], log: string, address: Address): Promise<Running> {
  const script = 'java "$@" >"$LOG" 2>&1 & echo $!; cat >/dev/null; kill -9 $! 2>/dev/null; wait';
  const shell = spawn('sh', ['-c', script, 'sh', ...args], {
    env: { ...process.env, LOG: log },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [processId] = (await once(shell.stdout, 'data')) as [Buffer];
  const kill = (): Promise<void> => end(shell, Number(String(processId)));
  try {
    await waitFor(() => listens(address), {
      what: 'Kafka to listen',
      timeoutMs: startTimeoutMs,
    });
  } catch (error) {
    await kill();
    throw new Error(`Kafka did not start: ${readFileSync(log, 'utf8')}`, { cause: error });
  }
  return { kill };
}

async function end(shell: ChildProcess, processId: number): Promise<void> {
  if (shell.exitCode !== null) return;
  const ended = once(shell, 'exit');
  try {
    process.kill(processId, 'SIGKILL');
  } catch {
    // the broker has ended by itself
  }
  shell.stdin?.end();
  await ended;
}

async function listens({ host: name, port }: Address): Promise<boolean> {
  const socket = connect(port, name);
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Holds all ports at once, so that no port is given twice. */
async function freeAddresses(): Promise<[Address, Address, Address, Address, Address]> {
  const take = async (server: Server): Promise<Address> => {
    await once(server, 'listening');
    return { host, port: (server.address() as AddressInfo).port };
  };
  const listen = (): Server => createServer().listen(0, host);
  const servers = [listen(), listen(), listen(), listen(), listen()] as const;
  const [first, second, third, fourth, fifth] = servers;
  const addresses = await Promise.all([
    take(first),
    take(second),
    take(third),
    take(fourth),
    take(fifth),
  ]);
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return addresses;
}
