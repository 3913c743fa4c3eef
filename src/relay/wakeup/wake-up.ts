// Wake-up: makes the idle destinations of one relay claim again, after a notification or when the due poller finds
// work. It also tells producers for which destinations the relay listens and which ones it polls already, so they
// notify only when it helps.

import type { Database } from '../../database/connection.js';
import { registerListener } from '../../database/wake-up.js';
import type { Emit } from '../../telemetry/events.js';
import type { ResolvedRelayOptions } from '../options.js';
import type { Signal } from '../signal.js';
import { DuePoller, frequentPollMs } from './due-poller.js';
import { NotificationListener } from './notification-listener.js';

/** One destination; its state is read when it is registered. */
export type WakeableDestination = {
  readonly destinationId: number;
  /** One listener row serves all endpoints; an endpoint has its own only while it is active. */
  readonly isEndpoint: boolean;
  /** For how long producers need not notify. */
  readonly activeMs: number;
  wake(): void;
};

/** What serves the endpoints. Those without work have no pipeline, so no destination here. */
export type EndpointsWakeUp = {
  /** There may be work for these destinations. Those that are no endpoints are ignored. */
  wake(destinationIds: readonly number[]): void;
  /** The pipeline of an endpoint has become idle. */
  becameIdle(destinationId: number): void;
};

export type WakeUpOptions = {
  work: Database;
  control: Database;
  relayId: string;
  relay: ResolvedRelayOptions;
  emit: Emit;
};

const listeningMs = 50_000;
/** Registrations of idle destinations are renewed with every fourth heartbeat. */
const renewEvery = 4;
/** The fallback poll while it listens, if the options do not give one. */
const listeningPollMs = 2500;
/** Stands for all endpoints in the table of listeners. */
const allEndpoints = 0;

export class WakeUp {
  readonly database: Database;
  /** The rest between two claims while active, if the options give one. */
  readonly pollMs: number | undefined;
  /** False for a relay with a filter: other relays need the notifications for messages that it does not take. */
  readonly maySilence: boolean;
  readonly #options: WakeUpOptions;
  readonly #destinations = new Map<number, WakeableDestination>();
  /** Endpoints that have a listener row, because they are active. */
  readonly #activeEndpoints = new Set<number>();
  #endpoints: EndpointsWakeUp | undefined;
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
    const maySilence = relay.tenantIds === undefined && relay.namespace === undefined;
    this.maySilence = maySilence;
    const fallbackPollMs = () => this.#fallbackPollMs;
    this.#poller = new DuePoller({
      database: work,
      get fallbackPollMs() {
        return fallbackPollMs();
      },
      maySilence,
      isListening: () => this.isListening,
      onDueEndpoints: () => this.#endpoints?.wake.bind(this.#endpoints),
      emit,
    });
  }

  /** The relay serves endpoints: it listens for all of them, and the due poller looks for their work too. */
  serveEndpoints(endpoints: EndpointsWakeUp): void {
    this.#endpoints = endpoints;
  }

  /** Adds a destination. The next call of `registerNew` or `registerAll` registers it. */
  join(destination: WakeableDestination): void {
    this.#destinations.set(destination.destinationId, destination);
    if (this.#listener !== undefined && !destination.isEndpoint) this.#toRegister.add(destination);
  }

  /** Later wake-ups of the endpoint open it again. To be called before its pipeline stops, so that none is lost. */
  forget(destination: WakeableDestination): void {
    const { destinationId } = destination;
    if (this.#destinations.get(destinationId) === destination)
      this.#destinations.delete(destinationId);
  }

  /** Removes a destination and its registration: this relay does not serve it any more. */
  async leave(destination: WakeableDestination): Promise<void> {
    const { destinationId, isEndpoint } = destination;
    this.forget(destination);
    this.#toRegister.delete(destination);
    if (isEndpoint && !this.#activeEndpoints.delete(destinationId)) return;
    const withdraw = () => this.#store([destinationId], 0, 0);
    this.#lastFlush = this.#lastFlush.then(withdraw, withdraw);
    await this.#lastFlush;
  }

  /** Resolves when the signal of an idle destination is raised, from outside or because a delivery is due. */
  async whenDue(destination: WakeableDestination, signal: Signal): Promise<void> {
    const woken = this.#poller.wait(destination, signal);
    this.becameIdle(destination);
    await woken;
  }

  /** A destination waits for work, or has recorded the last outcome while it waits. */
  becameIdle({ destinationId, isEndpoint }: WakeableDestination): void {
    if (isEndpoint) this.#endpoints?.becameIdle(destinationId);
  }

  /** There may be work for these destinations: they claim at once. */
  wake(destinationIds: readonly number[]): void {
    const unknown = destinationIds.filter((id) => !this.#destinations.has(id));
    for (const id of destinationIds) this.#destinations.get(id)?.wake();
    if (unknown.length > 0) this.#endpoints?.wake(unknown);
  }

  wakeAll(): void {
    for (const destination of this.#destinations.values()) destination.wake();
    this.look();
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
    this.#poller.stop();
    await this.#listener?.stop();
  }

  /** Registers the present state of a destination: whether this relay listens for it, and whether it polls it. */
  async register(destination: WakeableDestination): Promise<void> {
    this.#toRegister.add(destination);
    await this.#flushNext();
  }

  async registerAll(): Promise<void> {
    await this.#registerIf(() => true);
    await this.#registerForEndpoints();
  }

  /** Registers the destinations that joined since the last registration. */
  async registerNew(): Promise<void> {
    if (this.#toRegister.size > 0) await this.#flushNext();
  }

  /**
   * Called with each heartbeat, because registrations expire. Those of idle destinations last longer, so they are
   * renewed less often.
   */
  async renew(): Promise<void> {
    this.#renewals += 1;
    const all = this.#renewals % renewEvery === 1;
    await this.#registerIf(({ activeMs }) => all || activeMs > 0);
    if (all) await this.#registerForEndpoints();
  }

  async #registerForEndpoints(): Promise<void> {
    if (this.#endpoints === undefined || this.#listener === undefined) return;
    const listen = () => this.#store([allEndpoints], 0, this.isListening ? listeningMs : 0);
    this.#lastFlush = this.#lastFlush.then(listen, listen);
    await this.#lastFlush;
  }

  /** Does nothing without a listener: such a relay only registers when it begins or ends to poll (`register`). */
  async #registerIf(isMeant: (destination: WakeableDestination) => boolean): Promise<void> {
    if (this.#listener === undefined) return;
    for (const destination of this.#destinations.values())
      if (destination.isEndpoint ? destination.activeMs > 0 : isMeant(destination))
        this.#toRegister.add(destination);
    await this.registerNew();
  }

  /** It listens at present: producers' notifications arrive. */
  get isListening(): boolean {
    return this.#listener?.listening ?? false;
  }

  /**
   * While it listens, the poll only finds what was not notified, so it is slow. A relay with a filter needs it for its
   * retries too: the next due delivery that the poller learns of may be for another relay.
   */
  get #fallbackPollMs(): number | null {
    const { fallbackPollMs, leaseMs } = this.#options.relay;
    if (fallbackPollMs !== undefined) return fallbackPollMs;
    const defaultMs = this.isListening && this.maySilence ? listeningPollMs : frequentPollMs;
    return Math.min(defaultMs, Math.floor(leaseMs / 3));
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
    const validMs = this.isListening ? listeningMs : 0;
    const byState = new Map<string, { ids: number[]; activeMs: number; validMs: number }>();
    for (const { activeMs, destinationId, isEndpoint } of destinations) {
      const state = `${activeMs} ${isEndpoint}`;
      const group = byState.get(state) ?? { ids: [], activeMs, validMs: isEndpoint ? 0 : validMs };
      group.ids.push(destinationId);
      byState.set(state, group);
      if (isEndpoint && activeMs > 0) this.#activeEndpoints.add(destinationId);
      else this.#activeEndpoints.delete(destinationId);
    }
    for (const group of byState.values())
      await this.#store(group.ids, group.activeMs, group.validMs);
  }

  async #store(ids: readonly number[], activeMs: number, validMs: number): Promise<void> {
    const { work, relayId } = this.#options;
    await registerListener(work, relayId, ids, { activeMs, listeningMs: validMs });
  }
}
