// One contract, tested for every destination on its real service: a message reported as delivered is there, whatever
// happened on the way, and a message that cannot be delivered gets an outcome in time, with a code. A proxy between the
// two makes slowness, silence and cuts. At the end a table shows what was tested where.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { claimedRow } from '../support/claimed-message.js';
import { importAll, packageUrl, runNode } from '../support/cli.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { Sender, fields, messagesOf } from './sender.js';
import { services } from './services/all.js';
import type { RunningService } from './services/service.js';
import { Table } from './table.js';

const startMs = 60_000;
const caseMs = 45_000;
const table = new Table(services.map(({ kind, service }) => ({ kind, service })));

afterAll(() => table.print());

describe.each(services)('$kind', (kind) => {
  const unavailable = kind.unavailable();
  if (unavailable !== null) {
    if (process.env['CI']) throw new Error(`${kind.kind}: ${unavailable}`);
    console.warn(`The contract of ${kind.kind} is left out: ${unavailable}.`);
    table.leaveOut(kind.kind, unavailable);
  }

  let proxy: TcpProxy;
  let service: RunningService;
  beforeAll(async () => {
    if (unavailable !== null) return;
    proxy = await TcpProxy.open();
    service = await kind.start(proxy.address);
    proxy.leadTo(service.address);
  }, startMs);
  afterAll(async () => {
    await proxy?.close();
    await service?.stop();
  }, startMs);

  const prove = (name: string, proof: () => Promise<void>): void => {
    it.skipIf(unavailable !== null)(
      `M11 ${name}`,
      async () => {
        await proxy.comeBack();
        await table.record(kind.kind, name, proof);
      },
      caseMs,
    );
  };
  const make = (overrides: Parameters<typeof kind.make>[1] = {}): Promise<Sender> =>
    Sender.open(kind.make(proxy.address, overrides));
  const received = async (ids: readonly string[]): Promise<string[]> =>
    (await service.received()).filter((id) => ids.includes(id));

  prove('success', async () => {
    const sender = await make();
    const messages = messagesOf(25);
    const outcomes = await sender.send(messages);
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(messages.map(() => 'delivered'));
    const ids = messages.map(({ id }) => id);
    expect((await received(ids)).toSorted()).toEqual(ids.toSorted());
    expect(await sender.health()).toEqual({ ok: true });
  });

  prove('opened again', async () => {
    const destination = kind.make(proxy.address, {});
    for (let time = 1; time <= 2; time += 1) {
      const sender = await Sender.open(destination);
      const [message] = messagesOf(1);
      expect(await sender.send([message])).toMatchObject([{ kind: 'delivered' }]);
      await sender.close();
    }
  });

  prove('slow', async () => {
    const sender = await make();
    proxy.behaviour = { delayMs: 150 };
    const [message] = messagesOf(1);
    const startedMs = performance.now();
    expect(await sender.send([message], 20_000)).toMatchObject([{ kind: 'delivered' }]);
    expect(performance.now() - startedMs).toBeGreaterThan(150);
  });

  prove('timeout', async () => {
    const sender = await make();
    const [first, second, third] = messagesOf(3);
    expect(await sender.send([first])).toMatchObject([{ kind: 'delivered' }]);
    proxy.behaviour = 'silent';
    const startedMs = performance.now();
    expect(await sender.send([second], 500)).toMatchObject([{ kind: 'retry' }]);
    expect(performance.now() - startedMs).toBeLessThan(5000);
    proxy.behaviour = 'pass';
    // messages in flight may be lost on the silent connection; later ones must not be
    await sender.sendUntilDelivered([third]);
    expect(await received([third.id])).toContain(third.id);
  });

  prove('cut', async () => {
    const sender = await make();
    const [first, second] = messagesOf(2);
    await sender.sendUntilDelivered([first]);
    proxy.behaviour = 'silent';
    const sent = sender.send([second], 20_000);
    await waitFor(() => proxy.connections > 0, { what: 'a connection' });
    proxy.cut();
    proxy.behaviour = 'pass';
    const [outcome] = await sent;
    expect(['retry', 'delivered']).toContain(outcome?.kind);
    await sender.sendUntilDelivered([second]);
    expect(await received([second.id])).toContain(second.id);
  });

  prove('refused', async () => {
    await proxy.leave();
    const sender = await make();
    const [message] = messagesOf(1);
    expect(await sender.send([message], 5000)).toMatchObject([{ kind: 'retry' }]);
    expect(await sender.health()).toMatchObject({ ok: false });
    await proxy.comeBack();
    await sender.sendUntilDelivered([message]);
    expect(await received([message.id])).toContain(message.id);
  });

  prove('restart in the middle', async () => {
    const sender = await make();
    const messages = messagesOf(60);
    const parts = [messages.slice(0, 20), messages.slice(20, 40), messages.slice(40)];
    const delivered: string[] = [];
    const note = async (part: readonly ClaimedMessage[]): Promise<void> => {
      const outcomes = await sender.send(part, 2000);
      part.forEach(({ id }, index) => {
        if (outcomes[index]?.kind === 'delivered') delivered.push(id);
      });
    };
    await note(parts[0] ?? []);
    expect(delivered).toHaveLength(20);
    const midway = note(parts[1] ?? []);
    await service.kill();
    await midway;
    await note(parts[2] ?? []);
    await service.restart();
    const rest = messages.filter(({ id }) => !delivered.includes(id));
    expect(rest.length).toBeGreaterThan(0);
    await sender.sendUntilDelivered(rest);
    const ids = messages.map(({ id }) => id);
    // also what was reported as delivered before the crash
    expect([...new Set(await received(ids))].toSorted()).toEqual(ids.toSorted());
  });

  prove('partial failure of a batch', async () => {
    const { refusedInBatch } = kind.expected;
    if (typeof refusedInBatch === 'string') return table.doesNotApply(kind.kind, refusedInBatch);
    const sender = await make({ picky: true });
    const messages = messagesOf(5, (index) => ({ topic: index === 2 ? 'refused.one' : 'taken' }));
    const outcomes = await sender.send(messages);
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(
      messages.map((_, index) => (index === 2 ? refusedInBatch.kind : 'delivered')),
    );
    expect(outcomes[2]).toMatchObject(refusedInBatch);
  });

  prove('missing topic, queue or stream', async () => {
    const sender = await make({ missing: true });
    const messages = messagesOf(1);
    expect(await sender.send(messages, 10_000)).toMatchObject([kind.expected.missing]);
    expect(await received(messages.map(({ id }) => id))).toEqual([]);
  });

  prove('oversized message', async () => {
    const sender = await make();
    const payload = JSON.stringify('x'.repeat(kind.tooLargeBytes));
    const [large] = messagesOf(1, () => ({ payload }));
    const [small] = messagesOf(1);
    expect(await sender.send([large], 20_000)).toMatchObject([kind.expected.oversized]);
    await sender.sendUntilDelivered([small]);
    expect(await received([large.id, small.id])).toEqual([small.id]);
  });

  prove('shutdown with work in flight', async () => {
    const sender = await make();
    const [first, second] = messagesOf(2);
    await sender.sendUntilDelivered([first]);
    proxy.behaviour = 'silent';
    const sent = sender.send([second], 30_000);
    await sender.close();
    const startedMs = performance.now();
    expect(await sent).toMatchObject([{ kind: 'retry' }]);
    expect(performance.now() - startedMs).toBeLessThan(5000);
  });

  prove('no handle left open', async () => {
    const script = `
      ${importAll}
      const destination = ${kind.source(proxy.address)};
      const { ClaimedMessage } = await import(${JSON.stringify(new URL('core/claimed-message.js', packageUrl).href)});
      const message = new ClaimedMessage(${JSON.stringify(claimedRow(fields()))});
      const context = { signal: new AbortController().signal };
      await destination.open?.();
      const outcome = destination.deliverBatch
        ? (await destination.deliverBatch([message], context))[0]
        : await destination.deliver(message, context);
      await destination.close?.();
      console.log(outcome.kind, outcome.message ?? '');
    `;
    const child = runNode(['--input-type=module', '-e', script]);
    expect(await child.ended(20_000)).toMatchObject({ code: 0, stdout: 'delivered \n' });
  });
});
