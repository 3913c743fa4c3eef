// The plan of `waybill init`: which files a project gets, which it has already, and what to run next.

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { migrationSteps } from '../database/migration-steps.js';
import type { MigrationTool, PackageManager, Project } from './detect.js';
import { planMigrationFiles } from './migration-files.js';
import type { MigrationFormat } from './migration-files.js';
import type { PlannedFile } from './project-files.js';
import { configText, exampleText } from './templates.js';

const schema = 'outbox';

export type ProjectPlan = {
  files: PlannedFile[];
  /** Commands in their order. */
  next: string[];
};

export function planProject(directory: string, project: Project): ProjectPlan {
  const ending = project.typescript ? (project.isModule ? 'ts' : 'mts') : 'mjs';
  const example = `${project.hasSource ? 'src/' : ''}waybill-example.${ending}`;
  const endings = ['ts', 'mts', 'js', 'mjs'];
  return {
    files: [
      ownFile(directory, 'waybill.config', ending, endings, configText),
      ...migrationFiles(directory, project.tool),
      ownFile(
        directory,
        example.replace(/\.\w+$/, ''),
        ending,
        endings,
        exampleText(project, example),
      ),
    ],
    next: nextCommands(project),
  };
}

/** A file with another ending serves the same purpose, and is kept. */
function ownFile(
  directory: string,
  name: string,
  ending: string,
  endings: readonly string[],
  text: string,
): PlannedFile {
  const existing = endings
    .map((other) => path.join(directory, `${name}.${other}`))
    .find((file) => existsSync(file));
  return {
    path: existing ?? path.join(directory, `${name}.${ending}`),
    text,
    exists: existing !== undefined,
  };
}

function migrationFiles(directory: string, tool: MigrationTool): PlannedFile[] {
  if (tool === null) return [];
  return planMigrationFiles({
    format: tool.format,
    directory: path.resolve(directory, tool.directory),
    schema,
    steps: migrationSteps(schema),
  });
}

/** Whether a kept file differs from what would have been written. */
export function differs({ path: file, text }: PlannedFile): boolean {
  return readFileSync(file, 'utf8') !== text;
}

const runners: Record<PackageManager, string> = {
  npm: 'npx',
  pnpm: 'pnpm exec',
  yarn: 'yarn',
  bun: 'bunx',
};

const toolCommands: Record<MigrationFormat, string> = {
  drizzle: 'drizzle-kit migrate',
  prisma: 'prisma migrate deploy',
  'node-pg-migrate': 'node-pg-migrate up',
  knex: 'knex migrate:latest',
  flyway: 'flyway migrate',
  plain: 'waybill migrate up',
};

function nextCommands({ packageManager, tool, hasWaybill }: Project): string[] {
  const runner = runners[packageManager];
  const migrate =
    tool?.format === 'flyway'
      ? toolCommands.flyway
      : `${runner} ${toolCommands[tool?.format ?? 'plain']}`;
  const install = `${packageManager} ${packageManager === 'npm' ? 'install' : 'add'} waybill`;
  return [...(hasWaybill ? [] : [install]), migrate, `${runner} waybill start`];
}
