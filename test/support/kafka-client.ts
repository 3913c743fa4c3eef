// Reads and changes a Kafka directly, without Waybill: creates topics, and reads their records.

import { randomUUID } from 'node:crypto';

import {
  AclOperations,
  AclPermissionTypes,
  Admin,
  Consumer,
  ResourcePatternTypes,
  ResourceTypes,
  alterPartitionReassignmentsV0,
} from '@platformatic/kafka';
import type { Message } from '@platformatic/kafka';

import type { Address } from '../contract/services/service.js';
import { waitFor } from './wait.js';

const common = ({ host, port }: Address) => ({
  clientId: 'waybill-test',
  bootstrapBrokers: [`${host}:${port}`],
  retries: 20,
  retryDelay: 100,
});

export type Arrived = {
  partition: number;
  offset: bigint;
  key: string | null;
  value: string;
  headers: Record<string, string>;
};

/** Creates topics with their settings and number of partitions, by default one. */
export async function createTopics(
  address: Address,
  topics: Record<string, Record<string, string>>,
  partitions = 1,
): Promise<void> {
  const admin = new Admin(common(address));
  try {
    for (const [name, settings] of Object.entries(topics)) {
      const configs = Object.entries(settings).map(([key, value]) => ({ name: key, value }));
      await admin.createTopics({ topics: [name], partitions, replicas: 1, configs });
    }
  } finally {
    await admin.close();
  }
}

export async function topicNames(address: Address): Promise<string[]> {
  const admin = new Admin(common(address));
  try {
    return await admin.listTopics();
  } finally {
    await admin.close();
  }
}

/** Moves the partitions of a topic to these brokers, one for each; creates the topic if it is missing. */
export async function placePartitions(
  address: Address,
  topic: string,
  nodes: readonly number[],
): Promise<void> {
  const admin = new Admin(common(address));
  try {
    const assignments = nodes.map((node, partition) => ({ partition, brokers: [node] }));
    if (!(await admin.listTopics()).includes(topic)) {
      await admin.createTopics({ topics: [topic], assignments });
    } else {
      const connection = await admin.connections.getFirstAvailable([address]);
      const partitions = nodes.map((node, partitionIndex) => ({
        partitionIndex,
        replicas: [node],
      }));
      await alterPartitionReassignmentsV0.api.async(connection, 10_000, true, [
        { name: topic, partitions },
      ]);
    }
    await waitFor(
      async () => {
        const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
        const found = topics.get(topic)?.partitions.map(({ leader }) => leader);
        return String(found) === String(nodes);
      },
      { what: `${topic} to be led by ${nodes.join(', ')}`, timeoutMs: 30_000 },
    );
  } finally {
    await admin.close();
  }
}

/** Forbids this user to write to this topic. */
export async function forbidWriting(address: Address, topic: string, user: string): Promise<void> {
  const admin = new Admin(common(address));
  try {
    const acl = {
      resourceType: ResourceTypes.TOPIC,
      resourceName: topic,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      principal: `User:${user}`,
      host: '*',
      permissionType: AclPermissionTypes.DENY,
      operation: AclOperations.WRITE,
    };
    await admin.createAcls({ creations: [acl] });
  } finally {
    await admin.close();
  }
}

/** All records of the topic, each partition in its order. */
export async function readTopic(address: Address, topic: string): Promise<Arrived[]> {
  const consumer = new Consumer({ ...common(address), groupId: randomUUID() });
  try {
    const ends = (await consumer.listOffsets({ topics: [topic], timestamp: -1n })).get(topic) ?? [];
    let waiting = ends.reduce((sum, end) => sum + Number(end), 0);
    const arrived: Arrived[] = [];
    if (waiting === 0) return arrived;
    const stream = await consumer.consume({
      topics: [topic],
      mode: 'earliest',
      autocommit: false,
      maxWaitTime: 100,
    });
    for await (const message of stream) {
      arrived.push(describe(message));
      waiting -= 1;
      if (waiting === 0) break;
    }
    return arrived.toSorted((a, b) => a.partition - b.partition || Number(a.offset - b.offset));
  } finally {
    await new Promise<void>((resolve) => consumer.close(true, () => resolve()));
  }
}

export async function idsIn(address: Address, topic: string): Promise<string[]> {
  return (await readTopic(address, topic)).map(({ headers }) => headers['waybill-id'] ?? '');
}

function describe({ partition, offset, key, value, headers }: Message): Arrived {
  // the key is undefined if a record has none, although the type says otherwise
  const name = key as Buffer | undefined;
  return {
    partition,
    offset,
    key: name?.toString() ?? null,
    value: value.toString(),
    headers: Object.fromEntries(
      [...headers].map(([header, text]) => [header.toString(), text.toString()]),
    ),
  };
}
