// waybill/nestjs: a NestJS module with an injectable Outbox and Inbox and, optionally, a relay that runs as long as
// the application. Nest recognises a module and its hooks by their shape, so nothing of Nest is imported and any
// version fits. The classes are injection tokens, because types do not exist at run time.

import { createRelay, createShardedRelay } from './config.js';
import type { Config } from './config.js';
import { createInbox } from './consumer/inbox.js';
import type { Inbox as InboxFunctions, InboxOptions } from './consumer/inbox.js';
import type { Message } from './core/message.js';
import { anything, checkOptions, optional, schemaName } from './core/options.js';
import { createOutbox } from './producer/outbox.js';
import type { Outbox as OutboxFunctions, OutboxOptions } from './producer/outbox.js';
import type { RelayEvent } from './telemetry/events.js';

export type WaybillModuleOptions = OutboxOptions & {
  /** Run a relay with this configuration while the application runs. Default: none. */
  relay?: Config | undefined;
  /** Receives the events of the relay. */
  onEvent?: (event: RelayEvent) => void;
};

export type WaybillModuleAsyncOptions = {
  imports?: unknown[];
  inject?: unknown[];
  useFactory: (...dependencies: never[]) => WaybillModuleOptions | Promise<WaybillModuleOptions>;
};

/** The type of an outbox as a class, because Nest finds a provider by its class. */
const OutboxBase = class {} as unknown as abstract new <M>() => OutboxFunctions<M>;

/**
 * Inject it: `constructor(private readonly outbox: Outbox) {}`; with `events`, as `Outbox<EventMessage<typeof events>>`.
 */
export abstract class Outbox<M = Message> extends OutboxBase<M> {}

/** Inject it: `constructor(private readonly inbox: Inbox) {}`. */
export abstract class Inbox implements InboxFunctions {
  abstract readonly process: InboxFunctions['process'];
  abstract readonly processMany: InboxFunctions['processMany'];
}

const optionsToken = Symbol('waybill options');
const relayToken = Symbol('waybill relay');

type RelayHooks = {
  onApplicationBootstrap(): Promise<void>;
  onModuleDestroy(): Promise<void>;
};

type FactoryProvider = {
  provide: typeof Outbox | typeof Inbox | symbol;
  inject: never[];
  useFactory: (...dependencies: never[]) => unknown;
};

export type WaybillDynamicModule = {
  module: typeof WaybillModule | typeof WaybillProviders;
  global?: boolean;
  imports: never[];
  providers: FactoryProvider[];
  exports: FactoryProvider['provide'][];
};

/** A global module: its providers can be injected everywhere. */
class WaybillProviders {}

export class WaybillModule {
  /** Import it once, in the root module; it serves every module of the application. */
  static forRoot(options: WaybillModuleOptions = {}): WaybillDynamicModule {
    // invalid options are refused here, before the application starts
    check(options);
    return WaybillModule.forRootAsync({ useFactory: () => options });
  }

  /** The same with options from other providers, such as a ConfigService. */
  static forRootAsync({
    imports = [],
    inject = [],
    useFactory,
  }: WaybillModuleAsyncOptions): WaybillDynamicModule {
    const options: FactoryProvider = {
      provide: optionsToken,
      inject: inject as never[],
      useFactory: async (...dependencies) => check(await useFactory(...dependencies)),
    };
    const providers: WaybillDynamicModule = {
      module: WaybillProviders,
      global: true,
      imports: imports as never[],
      providers: [
        options,
        fromOptions(Outbox, ({ outbox }) => createOutbox(outbox)),
        fromOptions(Inbox, ({ inbox }) => createInbox(inbox)),
      ],
      exports: [optionsToken, Outbox, Inbox],
    };
    // Nest destroys modules from the root on, and global ones last. The relay is not in a global module, so it stops
    // while the providers that its handlers use still exist.
    return {
      module: WaybillModule,
      imports: [providers] as unknown[] as never[],
      providers: [fromOptions(relayToken, ({ makeRelay }) => relayHooks(makeRelay))],
      exports: [],
    };
  }
}

function fromOptions(
  provide: FactoryProvider['provide'],
  make: (options: Checked) => unknown,
): FactoryProvider {
  return {
    provide,
    inject: [optionsToken] as unknown[] as never[],
    useFactory: make,
  };
}

type Checked = {
  outbox: OutboxOptions;
  inbox: InboxOptions;
  makeRelay: (() => RunsAndStops) | undefined;
};

type RunsAndStops = { start(): Promise<void>; stop(): Promise<void> };

function check(options: WaybillModuleOptions): Checked {
  const {
    relay,
    onEvent,
    schema: given,
    ...rest
  } = checkOptions('WaybillModule', options, {
    schema: optional(schemaName),
    maxPayloadBytes: anything<number | undefined>(),
    maxHeaderBytes: anything<number | undefined>(),
    events: anything<OutboxOptions['events']>(),
    unrouted: anything<OutboxOptions['unrouted']>(),
    shard: anything<OutboxOptions['shard']>(),
    relay: anything<Config | undefined>(),
    onEvent: anything<WaybillModuleOptions['onEvent']>(),
  });
  const schema = given ?? relay?.database?.schema;
  const inbox = schema === undefined ? {} : { schema };
  const set = Object.entries(rest).filter(([, value]) => value !== undefined);
  const outbox: OutboxOptions = { ...inbox, ...Object.fromEntries(set) };
  createOutbox(outbox);
  if (relay === undefined) return { outbox, inbox, makeRelay: undefined };
  const config = { ...relay, ...(onEvent && { onEvent }) };
  const makeRelay = () => (config.shards ? createShardedRelay(config) : createRelay(config));
  return { outbox, inbox, makeRelay };
}

/** The hooks that Nest calls when every module is ready, and when the first one is destroyed. */
function relayHooks(makeRelay: (() => RunsAndStops) | undefined): RelayHooks {
  let relay: RunsAndStops | undefined;
  return {
    async onApplicationBootstrap() {
      relay = makeRelay?.();
      await relay?.start();
    },
    async onModuleDestroy() {
      await relay?.stop();
    },
  };
}
