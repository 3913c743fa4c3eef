// Destinations of a relay that wakes: opened in the background, and used only while they are open.

import { describe, expect, it } from 'vitest';

import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { delivered } from '../../src/core/outcome.js';
import { resolveSettings } from '../../src/destinations/destination.js';
import type { Destination, DeliveryContext } from '../../src/destinations/destination.js';
import { reopening } from '../../src/relay/sleep/reopening.js';

const message = { id: 'a' } as ClaimedMessage;
const unlimited: DeliveryContext = { signal: new AbortController().signal };

/** Records its calls. Each opening ends when the test says so. */
class Recording {
  readonly kind = 'recording';
  readonly calls: string[] = [];
  readonly endOpening: (() => void)[] = [];
  readonly #outcome = delivered();

  get settings() {
    return resolveSettings('recording', {});
  }

  get definition() {
    return { to: 'somewhere' };
  }

  async open(): Promise<void> {
    this.calls.push('open');
    await new Promise<void>((resolve) => this.endOpening.push(resolve));
    this.calls.push('opened');
  }

  close(): void {
    this.calls.push('close');
  }

  render() {
    return `${this.#outcome.kind} ${this.kind}`;
  }

  deliver() {
    this.calls.push('deliver');
    return this.#outcome;
  }
}

type Single = Extract<Destination, { deliver: unknown }>;

function reopeningOf(destination: Destination): Single {
  return reopening({ it: destination }, () => undefined)['it'] as Single;
}

describe('a destination of a relay that wakes', () => {
  it('has everything that it inherits from its class', () => {
    const found = reopeningOf(new Recording());
    expect(found).toMatchObject({ kind: 'recording', definition: { to: 'somewhere' } });
    expect(found.settings.mode).toBe('deliver');
    expect(found.render?.(message)).toBe('delivered recording');
  });

  it('sends nothing that has timed out while it was being opened', async () => {
    const recording = new Recording();
    const found = reopeningOf(recording);
    void found.open?.();
    const late = new AbortController();
    const timedOut = found.deliver(message, { signal: late.signal });
    const inTime = found.deliver(message, unlimited);
    late.abort(new Error('timeout'));
    recording.endOpening[0]?.();
    await expect(timedOut).rejects.toThrow('timeout');
    await inTime;
    expect(recording.calls).toEqual(['open', 'opened', 'deliver']);
  });

  it('is opened again if the relay slept before it was open', async () => {
    const recording = new Recording();
    const found = reopeningOf(recording);
    void found.open?.();
    await found.close?.();
    void found.open?.();
    const sent = found.deliver(message, unlimited);
    recording.endOpening[0]?.();
    await expect.poll(() => recording.endOpening.length).toBe(2);
    recording.endOpening[1]?.();
    await sent;
    expect(recording.calls).toEqual([
      'open',
      'close',
      'opened',
      'close',
      'open',
      'opened',
      'deliver',
    ]);
  });
});
