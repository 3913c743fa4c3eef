// Prisma's schema engine as `prisma migrate deploy` runs it, compiled to WebAssembly: the native program is a download
// that npm does not have. Like the native one, it sends each migration as one text; the driver adapter alone would split
// it at every semicolon.

import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

import { PrismaPg } from '@prisma/adapter-pg';
import { bindMigrationAwareSqlAdapterFactory } from '@prisma/driver-adapter-utils';
import * as bindings from '@prisma/schema-engine-wasm/schema_engine_bg';
import type { SchemaEngine } from '@prisma/schema-engine-wasm/schema_engine_bg';
import pg from 'pg';

type Adapter = Awaited<ReturnType<PrismaPg['connect']>>;

const datamodel = 'datasource db {\n  provider = "postgresql"\n}\n';
let loaded: Promise<void> | undefined;

/** The types of Node 20 do not have it. */
type Instantiate = (
  bytes: Uint8Array,
  imports: object,
) => Promise<{ instance: { exports: Record<string, unknown> } }>;

async function load(): Promise<void> {
  const file = createRequire(import.meta.url)
    .resolve('@prisma/schema-engine-wasm/schema_engine_bg')
    .replace(/\.js$/, '.wasm');
  const { WebAssembly } = globalThis as unknown as { WebAssembly: { instantiate: Instantiate } };
  const { instance } = await WebAssembly.instantiate(readFileSync(file), {
    './schema_engine_bg.js': bindings,
  });
  const internal = bindings as unknown as Record<string, (exports: unknown) => void>;
  internal['__wbg_set_wasm']?.(instance.exports);
  (instance.exports['__wbindgen_start'] as () => void)();
}

/** Applies the migrations of a directory, and returns the names of those that were pending. */
export async function deploy(directory: string, url: string): Promise<string[]> {
  await (loaded ??= load());
  const engine: SchemaEngine = await bindings.SchemaEngine.new(
    { datamodels: [['schema.prisma', datamodel]] },
    () => undefined,
    bindMigrationAwareSqlAdapterFactory(adapterFactory(url)),
  );
  try {
    const { appliedMigrationNames } = await engine.applyMigrations({
      migrationsList: {
        baseDir: directory,
        lockfile: {
          path: 'migration_lock.toml',
          content: readFileSync(path.join(directory, 'migration_lock.toml'), 'utf8'),
        },
        shadowDbInitScript: '',
        migrationDirectories: readdirSync(directory, { withFileTypes: true })
          .filter((entry) => entry.isDirectory())
          .map(({ name }) => ({
            path: name,
            migrationFile: {
              path: 'migration.sql',
              content: {
                tag: 'ok',
                value: readFileSync(path.join(directory, name, 'migration.sql'), 'utf8'),
              },
            },
          })),
      },
      filters: { externalTables: [], externalEnums: [] },
    });
    return appliedMigrationNames;
  } finally {
    engine.free();
  }
}

function adapterFactory(url: string): PrismaPg {
  const factory = new PrismaPg({ connectionString: url });
  const connect = factory.connect.bind(factory);
  factory.connect = async (): Promise<Adapter> => {
    const adapter = await connect();
    adapter.executeScript = async (script) => {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      try {
        await client.query(script);
      } finally {
        await client.end();
      }
    };
    return adapter;
  };
  return factory;
}
