// HTTP routes of the event catalogue and of the flow diagram.

import { HttpProblem, text, word } from '../../server/route.js';
import type { Route } from '../../server/route.js';
import { periodNames, readCatalogue, readCatalogueEvent } from './catalogue.js';
import type { DescribedEvents, PeriodName } from './catalogue.js';
import { readFlow } from './flow.js';

/** `describe` returns the typed events of the configuration. */
export function catalogueRoutes(describe: () => DescribedEvents): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/api/catalogue',
      scope: 'read',
      summary:
        'Every topic: the typed events of the configuration of this server, and topics that were seen in the log without a declaration, the 1,000 largest of the period.',
      returns:
        '`events`, each with its version, description, destinations and volume; the period `from` and `to`, and `completeTo`: everything before it is counted',
      parameters: {
        period: word({ description: 'of the volume; 24h if not given' }, periodNames),
      },
      answer: async ({ database, values, shared }) => {
        const { period = '24h' } = values as { period?: PeriodName };
        return shared.get(`catalogue ${period}`, () => readCatalogue(database, describe(), period));
      },
    },
    {
      method: 'GET',
      path: '/api/catalogue/event',
      scope: 'read',
      summary:
        'One topic: description, JSON Schema, example, versions, receivers and volume. Endpoints are counted up to 10,000.',
      returns: 'the event',
      errors: { 404: 'the topic is not declared, was not seen, and has no route of its own' },
      parameters: {
        topic: text({ required: true, description: 'the topic' }, 255),
      },
      async answer({ database, values }) {
        const topic = values['topic'] as string;
        const event = await readCatalogueEvent(database, describe(), topic);
        if (event === null)
          throw new HttpProblem(
            404,
            `topic is "${topic}", which is not declared and was not seen in the last 30 days: give a topic of /api/catalogue`,
          );
        return event;
      },
    },
    {
      method: 'GET',
      path: '/api/flow',
      scope: 'read',
      summary:
        'Which topics go to which destinations: the 20 busiest topics and 20 destinations, those with problems first. The rates of topics are those of the last 10 to 20 minutes, as far as they are counted: from `from` to `to`. Those of destinations are their tries of the last minute.',
      returns:
        '`from` and `to`, `topics` with their `destinations`, `destinations` with their state, and how many others there are',
      parameters: {},
      answer: async ({ database, shared }) =>
        shared.get('flow', () => readFlow(database, new Date())),
    },
  ];
}
