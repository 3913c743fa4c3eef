// Configuration of the Kafka broker in tests: its listeners, its logins, and small limits, because it is started often
// and has little to do.

import { spawnSync } from 'node:child_process';
import path from 'node:path';

import type { Address } from '../contract/services/service.js';

/** A login for the listener that requires a password. */
export const credentials = { username: 'waybill', password: 'only-for-tests' };

export type Listeners = {
  /** The listener behind the proxy, if there is one: clients are told the proxy's address. */
  readonly throughProxy: Address;
  readonly direct: Address;
  readonly withPassword: Address;
  readonly withTls: Address;
};

/** The brokers of the cluster. */
export type Cluster = { readonly id: string; readonly controller: Address };

export type BrokerSetup = Listeners & {
  readonly directory: string;
  readonly node: number;
  readonly cluster: Cluster;
  readonly through: Address;
  readonly tls: boolean;
};

const at = ({ host, port }: Address): string => `${host}:${port}`;

/** The configuration file of a broker; the first node is also the controller. */
export function brokerProperties(setup: BrokerSetup): string {
  const { directory, node, cluster, through, tls } = setup;
  const controller = node === 1 ? [`CONTROLLER://${at(cluster.controller)}`] : [];
  const properties = {
    'process.roles': node === 1 ? 'broker,controller' : 'broker',
    'node.id': node,
    'controller.quorum.voters': `1@${at(cluster.controller)}`,
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'DIRECT',
    listeners: [...listenersOf(setup, setup.throughProxy), ...controller],
    'advertised.listeners': listenersOf(setup, through),
    'listener.security.protocol.map':
      'THROUGH:PLAINTEXT,DIRECT:PLAINTEXT,PASSWORD:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT',
    ...passwords,
    ...(tls && {
      'ssl.keystore.type': 'PKCS12',
      'ssl.keystore.location': keyStore(directory),
      'ssl.keystore.password': credentials.password,
    }),
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'allow.everyone.if.no.acl.found': true,
    'super.users': 'User:ANONYMOUS',
    'log.dirs': path.join(directory, 'log'),
    // the broker may create topics by itself: only then does a test see which client asks for it
    'auto.create.topics.enable': true,
    'offsets.topic.replication.factor': 1,
    'offsets.topic.num.partitions': 1,
    'transaction.state.log.replication.factor': 1,
    'transaction.state.log.min.isr': 1,
    'group.initial.rebalance.delay.ms': 0,
    // how long a killed broker keeps its place, which keeps the next one out
    'broker.session.timeout.ms': 3000,
    'broker.heartbeat.interval.ms': 500,
    'num.network.threads': 2,
    'num.io.threads': 2,
    'log.cleaner.dedupe.buffer.size': 2_097_152,
  };
  return Object.entries(properties)
    .map(([name, value]) => `${name}=${String(value)}\n`)
    .join('');
}

function listenersOf(
  { direct, withPassword, withTls, tls }: BrokerSetup,
  through: Address,
): string[] {
  return [
    `THROUGH://${at(through)}`,
    `DIRECT://${at(direct)}`,
    `PASSWORD://${at(withPassword)}`,
    ...(tls ? [`TLS://${at(withTls)}`] : []),
  ];
}

const modules = 'org.apache.kafka.common.security';
const passwords = {
  'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
  'listener.name.password.plain.sasl.jaas.config': `${modules}.plain.PlainLoginModule required user_${credentials.username}="${credentials.password}";`,
  'listener.name.password.scram-sha-256.sasl.jaas.config': `${modules}.scram.ScramLoginModule required;`,
  'listener.name.password.scram-sha-512.sasl.jaas.config': `${modules}.scram.ScramLoginModule required;`,
};

/** Options to format the storage with, so that the user exists from the beginning. */
export const scramArguments = ['SCRAM-SHA-256', 'SCRAM-SHA-512'].flatMap((mechanism) => [
  '--add-scram',
  `${mechanism}=[name=${credentials.username},password=${credentials.password}]`,
]);

const keyStore = (directory: string): string => path.join(directory, 'keys.p12');

/** Creates a key and a self-signed certificate with the JDK's tool; returns the certificate. */
export function makeCertificate(directory: string, host: string): string {
  const store = ['-keystore', keyStore(directory), '-storepass', credentials.password];
  const keytool = (...args: string[]): string => {
    const { status, stdout, stderr } = spawnSync('keytool', [...args, ...store], {
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`keytool: ${stdout}${stderr}`);
    return stdout;
  };
  const subject = ['-dname', 'CN=localhost', '-ext', `san=ip:${host},dns:localhost`];
  keytool('-genkeypair', '-storetype', 'PKCS12', '-alias', 'k', '-keyalg', 'EC', ...subject);
  return keytool('-exportcert', '-rfc', '-alias', 'k');
}
