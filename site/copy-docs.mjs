// Copies docs/ and the documents of the root into pages/, where they find the packages of the site. Links are rewritten
// to the new places: a README is the index of its folder, the documents of the root are pages of Internals, and a file
// of the repository that is no page, such as a source or an example, is shown as its name.

import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { llmsText } from '../scripts/docs-llms.mjs';

const root = path.resolve(import.meta.dirname, '..');
const pages = path.join(import.meta.dirname, 'pages');
const decisions = 'docs/internals/decisions';

const fromRoot = ['ARCHITECTURE.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md'];
const fromDocs = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  .map((name) => `docs/${name.replaceAll(path.sep, '/')}`)
  .filter((name) => /\.\w+$/.test(name));

/** Where each file of the repository is in pages/. */
const places = new Map([
  ['README.md', 'index.md'],
  [decisions, 'internals/decisions/index.md'],
  ...fromRoot.map((name) => /** @type {const} */ ([name, `internals/${name.toLowerCase()}`])),
  ...fromDocs.map(
    (name) =>
      /** @type {const} */ ([name, name.replace(/^docs\//, '').replace(/README\.md$/, 'index.md')]),
  ),
]);

/** @param {string} file @param {string} place @param {string} text */
function withLinks(file, place, text) {
  return text.replaceAll(
    /\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)/g,
    (link, words, target, anchor = '') => {
      const linked = path.posix.join(path.posix.dirname(file), target).replace(/\/$/, '');
      const page = places.get(linked);
      if (page !== undefined)
        return `[${words}](${path.posix.relative(path.posix.dirname(place), page)}${anchor})`;
      if (words === linked || words === path.posix.basename(linked)) return `\`${linked}\``;
      return `${words} (\`${linked}\`)`;
    },
  );
}

function decisionList() {
  const notes = fromDocs.filter((name) => name.startsWith(`${decisions}/`));
  const lines = notes.toSorted().map((name) => {
    const title = /^# (.+)$/m.exec(readFileSync(path.join(root, name), 'utf8'))?.[1] ?? name;
    return `- [${title.replace('. ', '\\. ')}](${path.posix.basename(name)})`;
  });
  return `# Decisions\n\nChoices that had alternatives.\n\n${lines.join('\n')}\n`;
}

rmSync(pages, { recursive: true, force: true });
for (const file of [...fromRoot, ...fromDocs]) {
  const place = places.get(file) ?? file;
  const target = path.join(pages, place);
  mkdirSync(path.dirname(target), { recursive: true });
  if (!file.endsWith('.md')) cpSync(path.join(root, file), target);
  else writeFileSync(target, withLinks(file, place, readFileSync(path.join(root, file), 'utf8')));
}
writeFileSync(path.join(pages, 'internals/decisions/index.md'), decisionList());
// copied to the root of the site as it is
mkdirSync(path.join(pages, 'public'));
writeFileSync(path.join(pages, 'public/llms.txt'), withLinks('llms.txt', 'llms.txt', llmsText()));
