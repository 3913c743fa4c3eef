// HTTP routes that read destinations: the list, one with its errors and times, and its counts over time.

import { destinationProblems } from '../../core/destination-state.js';
import { findDestination } from '../../database/definitions.js';
import { chartRange } from '../../listing/chart-bounds.js';
import { readDestination } from '../../listing/destination-detail.js';
import { destinationOrders, listDestinations } from '../../listing/destination-list.js';
import type { DestinationFilter } from '../../listing/destination-list.js';
import { readDestinationStatistics } from '../../listing/destination-statistics.js';
import { text, time, wholeNumber, word } from '../route.js';
import type { Route } from '../route.js';

const name = text({ in: 'path', description: 'the destination' }, 63);
const errors = { 404: 'no such destination' };

type ListValues = DestinationFilter & {
  order?: (typeof destinationOrders)[number];
  limit?: number;
  next?: string;
};

export const destinationRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/destinations',
    scope: 'read',
    summary:
      'Destinations: counts of deliveries by status (`waiting` counts the pending ones), which are paused, and their `deliveryRate` and `successRate` of the last five minutes (null if there were none). Counts above 10,000 are estimates. Of each problem, at most 2,000 destinations come first; the orders `waiting` and `dead` count the 20,000 oldest deliveries and the 20,000 newest dead letters.',
    returns: '`destinations`, and `next` if there are more',
    parameters: {
      search: text({ description: 'with this text in the name' }, 63),
      problem: word(
        {
          description:
            'with this problem: an open `breaker`, in no configuration although deliveries wait (`unconfigured`), more failed than successful tries in five minutes (`failing`), `dead` letters, `paused`',
        },
        destinationProblems,
      ),
      origin: word(
        { description: 'of configurations and SQL (`file`), or endpoints (`database`)' },
        ['file', 'database'],
      ),
      order: word(
        {
          description:
            'those with problems first, in the order above, by name, or the largest first; problems if not given. With `problems`, a paused destination counts as paused whatever else is wrong',
        },
        destinationOrders,
      ),
      limit: wholeNumber({ description: 'this many; 500 if not given' }, { min: 1, max: 500 }),
      next: text({ description: '`next` of the previous page' }, 80),
    },
    answer({ database, shared, values }) {
      const { order = 'problems', limit = 500, next, ...filter } = values as ListValues;
      const page = { order, limit, ...(next !== undefined && { next }) };
      const read = () => listDestinations(database, filter, page);
      // only what many clients ask for: each text and each place would be another entry
      if (filter.search !== undefined || next !== undefined) return read();
      const { problem = '', origin = '' } = filter;
      return shared.get(`destinations ${order} ${limit} ${problem} ${origin}`, read);
    },
  },
  {
    method: 'GET',
    path: '/api/destinations/{name}',
    scope: 'read',
    summary:
      'One destination: its state and settings; its address without secrets, as the newest relay declared it; its routes; since when it has failed, and its last error; the errors and the times of its newest tries in 24 hours, at most 1,000.',
    returns:
      'the fields of the list, `settings`, `routes`, `failingSince`, `statisticsFrom` (its oldest counts), `lastError`, `sample` with `errors` by code, each with its first and last time in the sample, and with `firstDeadAt`, when the oldest dead letter with its codes died, and `durations` of tries and `deliveryTimes` as histograms',
    errors,
    parameters: { name },
    async answer({ database, values }) {
      const found = await readDestination(database, values['name'] as string);
      // throws, and names those that exist
      if (found === null) await findDestination(database, values['name'] as string);
      return found;
    },
  },
  {
    method: 'GET',
    path: '/api/destinations/{name}/statistics',
    scope: 'read',
    summary:
      'Counts of a destination in intervals: deliveries that were `delivered`, tries that `failed`, and deliveries that `died` or `expired`. They are kept for 31 days.',
    returns:
      '`points` of `stepSeconds`, each at the end of its time, the last one at the end of the last complete slice (10 seconds; a minute for more than an hour, 10 minutes for more than a day); the totals, those of `minutes` up to now, and `deliveryRate` and `successRate` (null if there were none)',
    errors,
    parameters: {
      name,
      minutes: wholeNumber(
        { description: 'how many minutes back; 60 if not given' },
        { min: 10, max: 44_640 },
      ),
      from: time({ description: 'instead of minutes: the beginning of the time, with `to`' }),
      to: time({ description: 'the end of the time' }),
    },
    answer({ database, values }) {
      const {
        name: destination,
        minutes = 60,
        from,
        to,
      } = values as { name: string; minutes?: number; from?: Date; to?: Date };
      return readDestinationStatistics(database, destination, chartRange(from, to) ?? minutes);
    },
  },
];
