// Frame of the page: the user, the menu and the current screen.

import { useCallback, useEffect, useState } from 'preact/hooks';

import type { Health, Session } from './answers.js';
import { ApiError, get, isOutage, remove, whenLoggedOut } from './api.js';
import { KeysDialog } from './keys-dialog.js';
import { focusContent, useKeys, useScreenFocus } from './keys.js';
import { useLive, usePause } from './live.js';
import { Palette, usePalette } from './palette.js';
import { Icon, iconPaths } from './parts/icon.js';
import { Problem } from './parts/problem.js';
import { SourceLine } from './parts/source.js';
import { Toast } from './parts/toast.js';
import { usePlace } from './route.js';
import { DatabaseScreen } from './screens/database.js';
import { DestinationsScreen } from './screens/destinations.js';
import type { Entry } from './entry.js';
import { LoginScreen } from './screens/login.js';
import { MessageScreen } from './screens/message.js';
import { MessagesScreen } from './screens/messages.js';
import { NoScreen } from './parts/no-screen.js';
import { OverviewScreen } from './screens/overview.js';
import { RelaysScreen } from './screens/relays.js';
import { TailScreen } from './screens/tail.js';
import { SessionContext } from './session.js';
import { about, countUpTo, estimatedFrom } from './shown.js';
import { useTitle } from './title.js';
import { User } from './user.js';
import { useZone } from './zone.js';

/** The screens of features: each folder declares its own. */
const ofFeatures = import.meta.glob<{ entry: Entry }>('./screens/*/entry.ts', { eager: true });

const entries: readonly Entry[] = [
  {
    path: 'overview',
    name: 'Overview',
    icon: iconPaths.overview,
    screen: OverviewScreen,
    place: 10,
  },
  {
    path: 'messages',
    name: 'Messages',
    icon: iconPaths.messages,
    screen: MessagesScreen,
    place: 20,
  },
  { path: 'tail', name: 'Live tail', icon: iconPaths.tail, screen: TailScreen, place: 25 },
  {
    path: 'destinations',
    name: 'Destinations',
    icon: iconPaths.destinations,
    screen: DestinationsScreen,
    place: 60,
  },
  { path: 'relays', name: 'Relays', icon: iconPaths.relays, screen: RelaysScreen, place: 80 },
  {
    path: 'database',
    name: 'Database',
    icon: iconPaths.database,
    screen: DatabaseScreen,
    place: 90,
  },
  ...Object.values(ofFeatures).map(({ entry }) => entry),
].toSorted((one, other) => one.place - other.place);

/** The screens that a token limited to one tenant may open. */
const forTenants = ['messages', 'tail'];
/** These say themselves that live updates are paused. */
const withPause = ['messages', 'tail'];

/** How often the page asks for its session again during an outage. */
const retryMs = 3000;

export function App() {
  const [session, setSession] = useState<Session | null>();
  const [error, setError] = useState<Error>();
  const [ended, setEnded] = useState(false);
  const find = useCallback(async () => {
    try {
      setSession(await get<Session>('session'));
      setError(undefined);
    } catch (failure) {
      const isLoggedOut = failure instanceof ApiError && failure.status === 401;
      if (isLoggedOut) setSession(null);
      setError(isLoggedOut ? undefined : (failure as Error));
    }
  }, []);
  useEffect(() => {
    whenLoggedOut(() => {
      setEnded(true);
      setSession(null);
    });
    void find();
  }, []);
  useEffect(() => {
    if (error === undefined || !isOutage(error)) return undefined;
    const timer = setTimeout(() => void find(), retryMs);
    return () => clearTimeout(timer);
  }, [error]);
  if (error !== undefined)
    return (
      <main class="alone">
        <Problem error={error} again={() => void find()} />
      </main>
    );
  if (session === undefined) return null;
  if (session === null) return <LoginScreen ended={ended} loggedIn={() => void find()} />;
  return (
    <SessionContext.Provider value={session}>
      <Frame
        session={session}
        logOut={() =>
          void remove('session').finally(() => {
            setEnded(false);
            setSession(null);
          })
        }
      />
    </SessionContext.Provider>
  );
}

function Frame({ session, logOut }: { session: Session; logOut: () => void }) {
  const { path } = usePlace();
  // here, because a change renders every time again
  const [zone, toggleZone] = useZone();
  // a token that is limited to one tenant can only use the screens of messages
  const limited = session.tenantId !== null;
  const offered = limited ? entries.filter(({ path: of }) => forTenants.includes(of)) : entries;
  const isNamed = (entry: Entry): boolean => entry.path === path[0];
  const here = path.length === 0 ? offered[0] : offered.find(isNamed);
  const { data, error, refresh } = useLive<Health>(limited ? null : 'health', {
    everyMs: 15_000,
    always: true,
  });
  const counts = new Map(data?.health.map(({ metric, value }) => [metric, value]));
  const [paused, togglePaused] = usePause();
  const [palette, setPalette] = usePalette();
  const [showsKeys, setShowsKeys] = useState(false);
  useKeys(() => setShowsKeys(true));
  useScreenFocus(path.join('/'));
  const hasParts = ['messages', 'destinations', 'endpoints'].includes(here?.path ?? '');
  // the screen of one message, destination or endpoint has its own
  useTitle(hasParts && path[1] !== undefined ? undefined : here?.name);
  useEffect(() => {
    // on a phone the menu is wider than the screen, and grows when its counts arrive
    document
      .querySelector('nav [aria-current=page]')
      ?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [here, data === undefined]);
  const messageId = here?.path === 'messages' ? path[1] : undefined;
  const Screen = here?.screen;
  return (
    <div class="frame">
      <header class="side">
        <a
          class="skip"
          href="#content"
          onClick={(event) => {
            // the fragment of the address is the screen
            event.preventDefault();
            focusContent();
          }}
        >
          Skip to content
        </a>
        <div class="brand-line">
          <a class="brand" href="#/">
            <img src="./icon.svg" alt="" width="22" height="22" /> Waybill
          </a>
          <button
            type="button"
            class="bare"
            aria-label="Commands"
            aria-keyshortcuts="Control+K Meta+K"
            title="Commands (Ctrl-K)"
            onClick={() => setPalette(true)}
          >
            <Icon name="search" />
          </button>
        </div>
        <nav aria-label="Screens">
          {offered.map((entry) => (
            <a
              key={entry.path}
              href={`#/${entry.path}`}
              aria-current={entry === here ? 'page' : undefined}
            >
              <Icon path={entry.icon} />
              <span>{entry.name}</span>
              {entry.counted !== undefined && Boolean(counts.get(entry.counted)) && (
                <b class="badge">
                  {entry.counted === 'dead'
                    ? about(counts.get(entry.counted))
                    : countUpTo(counts.get(entry.counted), estimatedFrom)}
                </b>
              )}
            </a>
          ))}
        </nav>
        <User session={session} zone={zone} toggleZone={toggleZone} logOut={logOut} />
      </header>
      <main id="content">
        {paused && !withPause.includes(here?.path ?? '') && (
          <p class="notice">
            Live updates are paused.{' '}
            <button type="button" class="small" onClick={togglePaused}>
              Resume
            </button>
          </p>
        )}
        {error !== undefined && isOutage(error) && (
          <div class="outage">
            <Problem error={error} again={refresh} />
          </div>
        )}
        {messageId !== undefined ? (
          <MessageScreen key={messageId} id={messageId} />
        ) : Screen !== undefined ? (
          <Screen />
        ) : (
          <NoScreen exists={entries.some(isNamed)} offered={offered} />
        )}
        <SourceLine source={data?.source} />
      </main>
      <Toast />
      {palette && (
        <Palette
          entries={offered}
          zone={zone}
          toggleZone={toggleZone}
          showKeys={() => setShowsKeys(true)}
          close={() => setPalette(false)}
        />
      )}
      {showsKeys && <KeysDialog close={() => setShowsKeys(false)} />}
    </div>
  );
}
