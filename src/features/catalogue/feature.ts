// What the event catalogue adds to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const catalogue: Feature = {
  routes: async () => {
    const { catalogueRoutes } = await import('./routes.js');
    const { describeEvents } = await import('./catalogue.js');
    return (_background, config) => {
      // once, at the first request: describing hundreds of schemas takes long
      let described: ReturnType<typeof describeEvents> | undefined;
      return catalogueRoutes(() => (described ??= describeEvents(config.events)));
    };
  },
  section: 'Events and flow',
};
