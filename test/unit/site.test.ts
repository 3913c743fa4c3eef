// The documentation site is built from the documents as they are: every page is there, every link of the built pages
// leads to a page and a heading, and diagrams are drawn. `npm test` builds the pages without the scripts for the
// browser, which take two thirds of the time; `npm run test:full` builds those too. It needs the packages of site/
// (`cd site && npm ci`, 255 MB); without them it is skipped, and on CI that is an error.

import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

import { expect, inject, it } from 'vitest';

const isInstalled = existsSync('site/node_modules/vitepress');
if (!isInstalled) {
  const reason = 'the site is not built: run `npm ci` in site/';
  if (process.env['CI']) throw new Error(reason);
  console.warn(`skipped here: ${reason}`);
}

const built = path.resolve('site/dist');
const filesIn = (folder: string, ending: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith(ending),
  );

type Page = { address: string; html: string; ids: Set<string> };

/** The built pages by their address, such as `/operate/` and `/operate/alerts`. */
function builtPages(): Map<string, Page> {
  const pages = filesIn(built, '.html').map((name): [string, Page] => {
    const html = readFileSync(path.join(built, name), 'utf8');
    const ids = new Set([...html.matchAll(/ id="([^"]*)"/g)].map((match) => match[1] ?? ''));
    const address = `/${name.replace(/((?<=^|\/)index)?\.html$/, '')}`;
    return [address, { address, html, ids }];
  });
  return new Map(pages);
}

/** The links of a page inside the site, resolved as a browser does. */
function linksOf({ address, html }: Page): { href: string; target: URL }[] {
  return [...html.matchAll(/<a [^>]*?href="([^"]*)"/g)]
    .map(([, href = '']) => ({ href, target: new URL(href, `http://site${address}`) }))
    .filter(({ target }) => target.host === 'site');
}

it.skipIf(!isInstalled)(
  'the site has a page for every document, its links lead to pages and headings, and diagrams are drawn',
  async () => {
    const withoutScripts = inject('isFull') ? [] : ['--', '--mpa'];
    await promisify(execFile)('npm', ['run', 'build', ...withoutScripts], { cwd: 'site' });
    const pages = builtPages();
    const documents = [
      ...filesIn('docs', '.md').map(
        (name) => `/${name.replace(/((?<=^|\/)(README|index))?\.md$/, '')}`,
      ),
      ...['architecture', 'contributing', 'security', 'changelog'].map(
        (name) => `/internals/${name}`,
      ),
    ];
    expect(documents.length).toBeGreaterThan(40);
    expect(documents.filter((address) => !pages.has(address))).toEqual([]);

    const links = [...pages.values()].flatMap((page) =>
      linksOf(page).map((link) => ({ from: page.address, ...link })),
    );
    const relative = links.filter(({ href }) => href.startsWith('.'));
    expect(relative.length).toBeGreaterThan(200);
    expect(links.filter(({ target }) => target.hash !== '').length).toBeGreaterThan(500);
    const dead = links.filter(({ target: { pathname, hash } }) => {
      const page = pages.get(pathname);
      return (
        page === undefined || (hash !== '' && !page.ids.has(decodeURIComponent(hash.slice(1))))
      );
    });
    expect(dead.map(({ from, href }) => `${from}: ${href}`)).toEqual([]);

    const listed = readFileSync(path.join(built, 'llms.txt'), 'utf8').matchAll(/\]\((\S+)\)/g);
    const addresses = [...listed].map(
      ([, file = '']) => `/${file.replace(/((?<=^|\/)index)?\.md$/, '')}`,
    );
    expect(addresses.length).toBeGreaterThan(40);
    expect(addresses.filter((address) => !pages.has(address))).toEqual([]);

    const texts = [...pages.values()].map(({ html }) => html);
    expect(texts.filter((html) => html.includes('class="diagram"')).length).toBe(2);
    expect(texts.filter((html) => html.includes('language-mermaid'))).toEqual([]);
  },
  300_000,
);
