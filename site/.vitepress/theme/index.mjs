// The theme of the site: the default one, and diagrams.

import DefaultTheme from 'vitepress/theme';

import Diagram from './diagram.mjs';

/** @type {import('vitepress').Theme} */
export default {
  extends: DefaultTheme,
  enhanceApp({ app }) {
    app.component('Diagram', Diagram);
  },
};
