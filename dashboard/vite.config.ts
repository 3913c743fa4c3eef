// Builds the page and the customer portal into dist/page, from where the server serves them. Each has its own entry, so
// customers get none of the operators' screens. Addresses are relative, so that they work behind a proxy's prefix;
// nothing is written inline, because the server's policy forbids it.

import { fileURLToPath } from 'node:url';

import { defineConfig } from 'vite';

export default defineConfig({
  root: fileURLToPath(new URL('.', import.meta.url)),
  base: './',
  build: {
    outDir: fileURLToPath(new URL('../dist/page', import.meta.url)),
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    target: 'es2022',
    rolldownOptions: {
      input: ['index.html', 'portal.html'].map((name) =>
        fileURLToPath(new URL(name, import.meta.url)),
      ),
    },
  },
});
