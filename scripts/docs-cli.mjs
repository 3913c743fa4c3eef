// Generates the flags of every command from the command line itself.

/** Flags that mean the same in most commands: they are described once. */
const common = ['--json', '--config', '--schema', '--shard'];

/** @typedef {import('commander').Command} Command */

/** @param {import('./docs.mjs').Load} load @returns {Promise<Record<string, string>>} */
export async function cliTables(load) {
  const { commands } = await load('cli/commands');
  const all = [];
  for (const make of Object.values(commands)) all.push(...runnable(await make(), 'waybill'));
  const shared = common.map((flag) => usualRow(all, flag));
  return {
    commonFlags: table(shared),
    commandFlags: all.map((one) => described(one, shared)).join('\n\n'),
  };
}

/** A command and those below it, without mere groups. @param {Command} command @param {string} above @returns {{ name: string, command: Command }[]} */
function runnable(command, above) {
  const name = `${above} ${command.name()}`;
  const below = command.commands.flatMap((child) => runnable(child, name));
  const isGroup = command.commands.length > 0 && command.options.length === 0;
  return isGroup ? below : [{ name, command }, ...below];
}

/** The row that a flag has in most commands. @param {{ command: Command }[]} all @param {string} flag */
function usualRow(all, flag) {
  const rows = all.flatMap(({ command }) =>
    command.options.filter(({ long }) => long === flag).map(row),
  );
  const count = (/** @type {string} */ wanted) => rows.filter((other) => other === wanted).length;
  const [usual] = rows.toSorted((one, other) => count(other) - count(one));
  if (usual === undefined) throw new Error(`no command has ${flag}`);
  return usual;
}

/** @param {{ name: string, command: Command }} one @param {string[]} shared the rows of the common flags */
function described({ name, command }, shared) {
  const given = command.registeredArguments.map((argument) => {
    const word = `${argument.name()}${argument.variadic ? '...' : ''}`;
    return argument.required ? ` <${word}>` : ` [${word}]`;
  });
  const rows = command.options.filter(({ hidden }) => !hidden).map(row);
  const own = rows.filter((one) => !shared.includes(one));
  const also = common.filter((_, index) => rows.includes(shared[index] ?? ''));
  return [
    `### ${name}`,
    `\`${name}${given.join('')}\`: ${command.description()}.`,
    ...(own.length > 0 ? [table(own)] : []),
    ...(also.length > 0
      ? [`${own.length > 0 ? 'Also' : 'Flags:'} ${also.map((flag) => `\`${flag}\``).join(', ')}.`]
      : []),
  ].join('\n\n');
}

/** @param {import('commander').Option} option */
function row({ flags, description, defaultValue, mandatory }) {
  const usual =
    defaultValue === undefined || defaultValue === false ? '' : ` (default: ${defaultValue})`;
  return `| \`${flags}\` | ${description.replaceAll('|', '\\|')}${usual}${mandatory ? ' (required)' : ''} |`;
}

/** @param {string[]} rows */
function table(rows) {
  return ['| flag | meaning |', '|---|---|', ...rows].join('\n');
}
