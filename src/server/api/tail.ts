// HTTP routes of the live tail. Each browser has a Tail in this process, and polls it: no event is shown twice, and the
// answer says what was left out. The number of tails is limited. A tail without a request for 30 seconds is removed.

import { randomUUID } from 'node:crypto';

import { tailEvents } from '../../listing/tail-events.js';
import type { TailWindow } from '../../listing/tail-events.js';
import { Tail } from '../../listing/tail.js';
import type { TailFilter } from '../../listing/tail.js';
import { actorOf } from '../access.js';
import { HttpProblem, text, uuid, word } from '../route.js';
import type { Route, RouteRequest } from '../route.js';

const followersAtMost = 40;
/** Limits for one token and for all tenants together, so that neither takes all places. */
const ofOneAtMost = 10;
const ofTenantsAtMost = 20;
const forgottenAfterMs = 30_000;
/** A page asks every second. One that was closed does not say so: it makes room for a new one after this time. */
const silentAfterMs = 5000;
/** The most events of an answer: the newest ones. */
const eventsAtMost = 200;

type Follower = {
  /** The tenant, or the client that sees all of them. */
  readonly owner: string;
  readonly ofTenant: boolean;
  readonly tail: Promise<Tail>;
  askedAtMs: number;
  /** One look at a time. */
  last: Promise<unknown>;
};

export function tailRoutes({
  atMost = followersAtMost,
  forgottenMs = forgottenAfterMs,
  silentMs = silentAfterMs,
}: { atMost?: number; forgottenMs?: number; silentMs?: number } = {}): [begin: Route, look: Route] {
  const followers = new Map<string, Follower>();
  const returns =
    '`tail` for the next request; `events`, the newest 200; `more`, how many events are left out; `unseen`, whether there were more entries than one request reads, so that matching events may be missing';
  // a standby does not know which transactions are running
  const shared = {
    method: 'GET',
    scope: 'read',
    forTenants: true,
    on: 'primary',
    returns,
  } as const;
  return [
    {
      ...shared,
      path: '/api/tail',
      summary: `Begins to follow enqueued messages, and attempts with their outcomes, from now on. At most ${followersAtMost} clients can follow at a time, ${ofOneAtMost} of one token or user, and ${ofTenantsAtMost} of all tenants; all tokens of a tenant count together. One that does not ask for 30 seconds is forgotten, or for ${silentAfterMs / 1000} seconds if there is no room for a new one.`,
      errors: { 429: 'too many clients follow already' },
      parameters: {
        event: word({ description: 'only this kind of event' }, tailEvents),
        destination: text({ description: 'at this destination' }),
        topic: text({
          description: 'of this topic; `order.*` for every topic that begins with `order.`',
        }),
        namespace: text({ description: 'of this namespace' }),
        tenantId: text({ description: 'of this tenant' }),
        key: text({ description: 'of this key' }),
        aggregateType: text({ description: 'of this kind of aggregate' }),
        aggregateId: text({ description: 'of the aggregate with this id' }),
        errorCode: text({ description: 'attempts that failed with this code' }),
      },
      async answer(request) {
        forgetOld(followers, forgottenMs);
        return begin(request, followers, { ...request.values }, { atMost, silentMs });
      },
    },
    {
      ...shared,
      path: '/api/tail/{tail}',
      summary: 'What has happened since the last request, with the filters of the first.',
      errors: { 404: 'no such tail: it was forgotten, or belongs to another server or token' },
      parameters: { tail: uuid({ in: 'path', description: '`tail` of the first answer' }) },
      async answer(request) {
        const { tail: id } = request.values as { tail: string };
        forgetOld(followers, forgottenMs);
        const follower = followers.get(id);
        if (follower === undefined || follower.owner !== ownerOf(request))
          throw new HttpProblem(404, `there is no tail ${id}: it was forgotten, begin a new one`);
        follower.askedAtMs = performance.now();
        return { tail: id, ...(await lookNext(follower)) };
      },
    },
  ];
}

async function begin(
  request: RouteRequest,
  followers: Map<string, Follower>,
  filter: TailFilter,
  { atMost, silentMs }: { atMost: number; silentMs: number },
): Promise<{ tail: string } & TailWindow> {
  const { database, access } = request;
  const owner = ownerOf(request);
  const ofTenant = access.tenantId !== null;
  const make = (most: number, whoFollows: string, counts: (each: Follower) => boolean): void =>
    makeRoom(followers, { most, silentMs, whoFollows, counts });
  make(ofOneAtMost, 'you follow', (each) => each.owner === owner);
  if (ofTenant) make(ofTenantsAtMost, 'tenants follow', (each) => each.ofTenant);
  make(atMost, 'clients follow', () => true);
  if (access.tenantId !== null) filter.tenantId = access.tenantId;
  const id = randomUUID();
  const tail = Tail.start(database, filter);
  // before it has begun: requests at the same time count
  followers.set(id, {
    owner,
    ofTenant,
    tail,
    askedAtMs: performance.now(),
    last: Promise.resolve(),
  });
  try {
    await tail;
  } catch (error) {
    followers.delete(id);
    throw error;
  }
  return { tail: id, events: [], more: 0, unseen: false };
}

type Places = {
  most: number;
  silentMs: number;
  whoFollows: string;
  counts: (follower: Follower) => boolean;
};

/** Forgets the silent ones of these followers if they are too many; throws 429 if none is silent. */
function makeRoom(
  followers: Map<string, Follower>,
  { most, silentMs, whoFollows, counts }: Places,
): void {
  const counted = [...followers].filter(([, each]) => counts(each));
  if (counted.length < most) return;
  const beforeMs = performance.now() - silentMs;
  const silent = counted.filter(([, { askedAtMs }]) => askedAtMs < beforeMs);
  if (silent.length === 0)
    throw new HttpProblem(
      429,
      `${whoFollows} ${counted.length} times already: close another live tail, or try again in ${silentAfterMs / 1000} seconds`,
    );
  for (const [id] of silent) followers.delete(id);
}

function lookNext(follower: Follower): Promise<TailWindow> {
  const look = async () => (await follower.tail).look(eventsAtMost);
  const next = follower.last.then(look, look);
  follower.last = next;
  return next;
}

function ownerOf({ access }: RouteRequest): string {
  return access.tenantId === null ? actorOf({ access }) : `tenant ${access.tenantId}`;
}

function forgetOld(followers: Map<string, Follower>, forgottenMs: number): void {
  const beforeMs = performance.now() - forgottenMs;
  for (const [id, { askedAtMs }] of followers) if (askedAtMs < beforeMs) followers.delete(id);
}
