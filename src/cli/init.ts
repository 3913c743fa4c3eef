// waybill init: writes a configuration, a migration and an example into an existing project. It overwrites nothing, runs
// nothing of the project, and needs neither a database nor a network.

import path from 'node:path';

import { Command, Option } from 'commander';

import { detectProject } from '../init/detect.js';
import type { Project } from '../init/detect.js';
import { migrationFormats } from '../init/migration-files.js';
import type { MigrationFormat } from '../init/migration-files.js';
import { differs, planProject } from '../init/plan.js';
import type { ProjectPlan } from '../init/plan.js';
import { writeFiles } from '../init/project-files.js';
import type { PlannedFile } from '../init/project-files.js';
import { confirm } from './confirm.js';
import { print, printJson } from './output.js';

type InitFlags = {
  format?: MigrationFormat | 'none';
  out?: string;
  dryRun?: boolean;
  yes?: boolean;
  json?: boolean;
};

export function initCommand(): Command {
  return new Command('init')
    .description('add Waybill to a project: a configuration, a migration and an example')
    .argument('[directory]', 'the project, with its package.json', '.')
    .addOption(
      new Option(
        '--format <tool>',
        'the migration tool, or none for waybill migrate up (default: as detected)',
      ).choices([...migrationFormats, 'none']),
    )
    .option('--out <directory>', 'where migrations go, in the project (default: as detected)')
    .option('--dry-run', 'show what would be written, and write nothing')
    .option('--yes', 'do not ask; without a terminal nothing is asked anyway')
    .option('--json', 'answer in JSON')
    .addHelpText(
      'after',
      `
Files that exist are kept, and what would have been written is shown.

Examples:
  $ npx waybill init
  $ npx waybill init packages/api --dry-run
  $ npx waybill init --format flyway --out src/main/resources/db/migration`,
    )
    .action(init);
}

async function init(directory: string, flags: InitFlags): Promise<void> {
  const detected = detectProject(directory);
  const project = { ...detected, tool: chosenTool(detected, flags) };
  const plan = planProject(directory, project);
  const added = plan.files.filter(({ exists }) => !exists);
  const asks =
    process.stdin.isTTY && !flags.yes && !flags.dryRun && !flags.json && added.length > 0;
  if (asks) {
    printPlan(directory, project, plan, 'to write');
    await confirm(`Write ${added.length} files?`, false);
  }
  if (!flags.dryRun) writeFiles(plan.files);
  const done = flags.dryRun ? 'to write' : 'wrote';
  if (flags.json) return printJson(described(directory, project, plan, done));
  if (!asks) printPlan(directory, project, plan, done);
  print(
    `\nNext, with DATABASE_URL in the environment or in .env:\n${plan.next.map((line) => `  $ ${line}`).join('\n')}`,
  );
}

const usualDirectories: Record<MigrationFormat, string> = {
  drizzle: 'drizzle',
  prisma: 'prisma/migrations',
  'node-pg-migrate': 'migrations',
  knex: 'migrations',
  flyway: 'sql',
  plain: 'migrations',
};

function chosenTool({ tool }: Project, { format, out }: InitFlags): Project['tool'] {
  if (format === 'none') return null;
  const chosen = format ?? tool?.format ?? (out === undefined ? undefined : 'plain');
  if (chosen === undefined) return null;
  const directory = tool?.format === chosen ? tool.directory : usualDirectories[chosen];
  return { format: chosen, directory: out ?? directory };
}

/** Migrations are too long to show, and have their own command. */
function isShown({ path: file }: PlannedFile): boolean {
  return path.basename(file).startsWith('waybill');
}

function printPlan(
  directory: string,
  project: Project,
  { files }: ProjectPlan,
  done: 'to write' | 'wrote',
): void {
  const { packageManager, typescript, library, tool } = project;
  const migrations =
    tool === null ? 'waybill migrate up' : `${tool.format}, in ${path.normalize(tool.directory)}`;
  print(
    `found     ${typescript ? 'TypeScript' : 'JavaScript'}, ${packageManager}, ${library}; migrations: ${migrations}`,
  );
  for (const file of files) {
    const name = path.relative(directory, file.path);
    if (!file.exists)
      print(`${(file.previousText === undefined ? done : 'adds to').padEnd(9)} ${name}`);
    else if (!isShown(file) || !differs(file)) print(`kept      ${name}`);
    else
      print(
        `kept      ${name}, which is there already; this would have been written:\n${file.text.trimEnd().replaceAll(/^/gm, '          | ')}`,
      );
  }
}

function described(
  directory: string,
  { packageManager, typescript, library, tool }: Project,
  { files, next }: ProjectPlan,
  done: 'to write' | 'wrote',
): unknown {
  return {
    project: { packageManager, typescript, library, migrations: tool },
    files: files.map((file) => ({
      path: path.relative(directory, file.path),
      state: file.exists ? 'kept' : done === 'wrote' ? 'written' : 'planned',
      ...(file.exists && isShown(file) && differs(file) && { wouldBe: file.text }),
    })),
    next,
  };
}
