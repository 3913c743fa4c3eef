// Wake-up: makes the idle destinations of one relay claim again, after a notification or when the due poller finds
// work. It also tells producers for which destinations the relay listens and which ones it polls already, so they
// notify only when it helps.

import type { Database } from '../../database/connection.js';
import { registerListener } from '../../database/wake-up.js';
import type { Emit } from '../../telemetry/events.js';
import type { ResolvedRelayOptions } from '../options.js';
import type { Signal } from '../signal.js';
import { DuePoller } from './due-poller.js';
import { NotificationListener } from './notification-listener.js';

/** One destination; its state is read when it is registered. */
export type WakeableDestination = {
  readonly destinationId: number;
  /** For how long producers need not notify. */
  readonly activeMs: number;
  wake(): void;
};

export type WakeUpOptions = {
  work: Database;
  control: Database;
  relayId: string;
  relay: ResolvedRelayOptions;
  emit: Emit;
};

const listeningMs = 30_000;

export class WakeUp {
  readonly database: Database;
  /** The rest between two claims while active, if the options give one. */
  readonly pollMs: number | undefined;
  /** False for a relay with a filter: other relays need the notifications for messages that it does not take. */
  readonly maySilence: boolean;
  readonly #options: WakeUpOptions;
  readonly #destinations = new Set<WakeableDestination>();
  readonly #poller: DuePoller;
  #listener: NotificationListener | undefined;
  /** Destinations to register with the next flush. */
  #toRegister = new Set<WakeableDestination>();
  #nextFlush: Promise<void> | undefined;
  #lastFlush: Promise<void> = Promise.resolve();
  #renewals = 0;

  constructor(options: WakeUpOptions) {
    const { work, relay, emit } = options;
    this.#options = options;
    this.database = work;
    this.pollMs = relay.pollMs;
    this.maySilence = relay.tenantIds === undefined && relay.namespace === undefined;
    this.#poller = new DuePoller({
      database: work,
      fallbackPollMs: relay.fallbackPollMs,
      maySilence: this.maySilence,
      isListening: () => this.#isListening,
      emit,
    });
  }

  /** Adds a destination. The next call of `registerNew` or `registerAll` registers it. */
  join(destination: WakeableDestination): void {
    this.#destinations.add(destination);
    if (this.#listener !== undefined) this.#toRegister.add(destination);
  }

  /** Removes a destination and its registration: this relay does not serve it any more. */
  async leave(destination: WakeableDestination): Promise<void> {
    this.#destinations.delete(destination);
    this.#toRegister.delete(destination);
    const withdraw = () => this.#store([destination.destinationId], 0, 0);
    this.#lastFlush = this.#lastFlush.then(withdraw, withdraw);
    await this.#lastFlush;
  }

  /** Resolves when the signal of an idle destination is raised, from outside or because a delivery is due. */
  async whenDue(destinationId: number, signal: Signal): Promise<void> {
    await this.#poller.wait(destinationId, signal);
  }

  /** There may be work for these destinations: they claim at once. */
  wake(destinationIds: readonly number[]): void {
    for (const destination of this.#destinations)
      if (destinationIds.includes(destination.destinationId)) destination.wake();
  }

  wakeAll(): void {
    for (const destination of this.#destinations) destination.wake();
  }

  /** There may be work for some idle destinations: the due poller looks for it. */
  look(): void {
    this.#poller.look();
  }

  /** Starts to listen. Resolves after the first attempt, whether it succeeded or not. */
  async listen(onEndpoints: () => void): Promise<void> {
    const { control, relayId, emit } = this.#options;
    this.#listener = new NotificationListener({
      database: control,
      relayId,
      emit,
      onNotification: (destinationId) => this.wake([destinationId]),
      onEndpoints,
      onListening: () => {
        void this.registerAll().catch(() => {});
        // for notifications that were sent before it listened
        this.look();
        onEndpoints();
      },
    });
    await this.#listener.start();
  }

  async stopListening(): Promise<void> {
    await this.#listener?.stop();
  }

  /** Registers the present state of a destination: whether this relay listens for it, and whether it polls it. */
  async register(destination: WakeableDestination): Promise<void> {
    this.#toRegister.add(destination);
    await this.#flushNext();
  }

  async registerAll(): Promise<void> {
    await this.#registerIf(() => true);
  }

  /** Registers the destinations that joined since the last registration. */
  async registerNew(): Promise<void> {
    if (this.#toRegister.size > 0) await this.#flushNext();
  }

  /**
   * Called with each heartbeat, because registrations expire. Those of idle destinations last longer, so every second
   * call renews them.
   */
  async renew(): Promise<void> {
    this.#renewals += 1;
    const all = this.#renewals % 2 === 1;
    await this.#registerIf(({ activeMs }) => all || activeMs > 0);
  }

  /** Does nothing without a listener: such a relay only registers when it begins or ends to poll (`register`). */
  async #registerIf(isMeant: (destination: WakeableDestination) => boolean): Promise<void> {
    if (this.#listener === undefined) return;
    for (const destination of this.#destinations)
      if (isMeant(destination)) this.#toRegister.add(destination);
    await this.registerNew();
  }

  get #isListening(): boolean {
    return this.#listener?.listening ?? false;
  }

  /**
   * Flushes run one after the other, each with the present state, because on two connections the older one could
   * arrive last. Calls during a flush join the next one, so hundreds of destinations cost a query or two.
   */
  #flushNext(): Promise<void> {
    if (this.#nextFlush === undefined) {
      const flush = () => this.#flush();
      this.#nextFlush = this.#lastFlush.then(flush, flush);
      this.#lastFlush = this.#nextFlush;
    }
    return this.#nextFlush;
  }

  async #flush(): Promise<void> {
    const destinations = [...this.#toRegister];
    this.#toRegister = new Set();
    this.#nextFlush = undefined;
    const byState = new Map<number, number[]>();
    for (const { activeMs, destinationId } of destinations)
      byState.set(activeMs, [...(byState.get(activeMs) ?? []), destinationId]);
    const validMs = this.#isListening ? listeningMs : 0;
    for (const [activeMs, ids] of byState) await this.#store(ids, activeMs, validMs);
  }

  async #store(ids: readonly number[], activeMs: number, validMs: number): Promise<void> {
    const { work, relayId } = this.#options;
    await registerListener(work, relayId, ids, { activeMs, listeningMs: validMs });
  }
}
