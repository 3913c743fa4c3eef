// llms.txt: an index of the documents for language models, as llmstxt.org describes it: each page with its title and
// its first sentences. Decisions are left out: they are for maintainers.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(import.meta.dirname, '..');

/** The sections, with the pages that come first; the others follow by name. @type {[string, string[], RegExp][]} */
const sections = [
  ['Start', ['README.md', 'docs/start/getting-started.md', 'docs/concepts.md'], /^docs\/start\//],
  ['Guides', [], /^docs\/guides\//],
  ['Reference', ['docs/reference/configuration.md', 'docs/reference/cli.md'], /^docs\/reference\//],
  ['Operate', ['docs/operate/README.md', 'docs/operate/troubleshooting.md'], /^docs\/operate\//],
  [
    'Optional',
    ['ARCHITECTURE.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md'],
    /^docs\/internals\/[^/]+$/,
  ],
];

export function llmsText() {
  const pages = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .map((name) => `docs/${name.replaceAll(path.sep, '/')}`)
    .filter((name) => name.endsWith('.md'))
    .toSorted();
  const lists = sections.map(([title, first, others]) => {
    const files = [...first, ...pages.filter((file) => others.test(file) && !first.includes(file))];
    return `## ${title}\n\n${files.map(entry).join('\n')}\n`;
  });
  return `# Waybill\n\n> ${about('README.md')}\n\n${lists.join('\n')}`;
}

/** @param {string} file */
function entry(file) {
  const title = /^# (.+)$/m.exec(text(file))?.[1] ?? file;
  return `- [${title}](${file}): ${about(file)}`;
}

/** The first paragraph without its links, at most 240 characters of whole sentences. @param {string} file */
function about(file) {
  const paragraph = text(file)
    .split(/\n{2,}/)
    .find((part) => !/^(#|```|\||-|<|!|$)/.test(part));
  const words = (paragraph ?? '')
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/\s+/g, ' ')
    .replace(/ Concepts explains the terms\./, '');
  const sentences = words.match(/.+?[.:](?= |$)/g) ?? [words];
  let kept = sentences[0] ?? '';
  for (const sentence of sentences.slice(1)) {
    if (kept.length + sentence.length > 240) break;
    kept += sentence;
  }
  return kept.replace(/:$/, '.');
}

/** @param {string} file */
function text(file) {
  return readFileSync(path.join(root, file), 'utf8');
}
