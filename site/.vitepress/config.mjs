// The documentation site: docs/ and the documents of the root, which copy-docs.mjs copies to pages/, with search,
// diagrams and a dark mode. The sidebar is the folders of pages/, each page by its first heading. A link to a missing
// page fails the build. Headings have the ids that GitHub gives them, so the same link works on both.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { defineConfig } from 'vitepress';

const docs = path.resolve(import.meta.dirname, '../pages');

/** @type {[string, string][]} */
const sections = [
  ['start', 'Start'],
  ['guides', 'Guides'],
  ['reference', 'Reference'],
  ['operate', 'Operate'],
  ['internals', 'Internals'],
];

/** @param {string} file */
function titleOf(file) {
  return /^# (.+)$/m.exec(readFileSync(path.join(docs, file), 'utf8'))?.[1] ?? file;
}

/** @param {string} folder @returns {{ text: string, link: string }[]} */
function pagesOf(folder) {
  return readdirSync(path.join(docs, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `${folder}/${name.replaceAll(path.sep, '/')}`)
    .map((file) => ({
      text: titleOf(file),
      link: `/${file.replace(/((?<=^|\/)index)?\.md$/, '')}`,
    }))
    .toSorted((one, other) => (one.link < other.link ? -1 : 1));
}

/** @param {string} heading */
function githubId(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{M}\p{N}_\- ]/gu, '')
    .replaceAll(' ', '-');
}

/** Shows blocks of Mermaid as diagrams. @param {import('vitepress').MarkdownRenderer} markdown */
function drawDiagrams(markdown) {
  const { fence } = markdown.renderer.rules;
  markdown.renderer.rules.fence = (tokens, index, ...rest) => {
    const { info, content } = tokens[index] ?? {};
    return info === 'mermaid'
      ? `<Diagram code="${encodeURIComponent(content ?? '')}" />`
      : (fence?.(tokens, index, ...rest) ?? '');
  };
}

export default defineConfig({
  title: 'Waybill',
  description: 'The transactional outbox for PostgreSQL',
  srcDir: docs,
  outDir: path.resolve(import.meta.dirname, '../dist'),
  cleanUrls: true,
  lastUpdated: false,
  markdown: {
    languageAlias: { psql: 'sql', crontab: 'shellscript' },
    anchor: { slugify: githubId },
    // the {id} at the end of a route is no attribute of its heading
    attrs: { disable: true },
    config: drawDiagrams,
  },
  // the diagrams are one large file, loaded only where there is one
  vite: { build: { chunkSizeWarningLimit: 3000 } },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Concepts', link: '/concepts' },
      ...sections.map(([folder, text]) => ({ text, link: pagesOf(folder)[0]?.link ?? '/' })),
    ],
    sidebar: [
      { text: 'Concepts', link: '/concepts' },
      ...sections.map(([folder, text]) => ({
        text,
        collapsed: folder === 'internals',
        items: pagesOf(folder),
      })),
    ],
  },
});
