// Frame of the portal: the name and logo of the company, the menu, and the screen. It shows nothing of an endpoint
// before the server has accepted the token of a tenant.

import { useEffect, useState } from 'preact/hooks';

import type { Session } from '../../../answers.js';
import { ApiError, get } from '../../../api.js';
import { Icon } from '../../../parts/icon.js';
import { Problem } from '../../../parts/problem.js';
import { Toast } from '../../../parts/toast.js';
import { usePlace } from '../../../route.js';
import { SessionContext } from '../../../session.js';
import { useTheme } from '../../../theme.js';
import { AddEndpoint, ChangeEndpoint } from './change.js';
import { EndpointScreen } from './endpoint.js';
import { EndpointsScreen } from './endpoints.js';
import { EventsScreen } from './events.js';
import { settings } from './settings.js';
import { openAccess } from './token.js';

type Access = { session: Session } | { problem: Error } | 'ended' | undefined;

export function Portal() {
  const [access, setAccess] = useState<Access>();
  const enter = async (): Promise<void> => {
    try {
      const session = await get<Session>('session');
      const problem = new Error('This address is for customers. Open it with a tenant token.');
      setAccess(session.tenantId === null ? { problem } : { session });
    } catch (problem) {
      if (!(problem instanceof ApiError && problem.status === 401))
        setAccess({ problem: problem as Error });
    }
  };
  useEffect(() => {
    document.title = settings.name;
    void openAccess((valid) => {
      if (valid) void enter();
      else setAccess('ended');
    });
  }, []);
  return (
    <>
      <Head signedIn={typeof access === 'object' && 'session' in access} />
      <main class="portal-main">
        {access === 'ended' ? (
          <Ended />
        ) : access === undefined ? (
          <p class="empty" role="status">
            Loading…
          </p>
        ) : 'problem' in access ? (
          <Problem error={access.problem} again={() => void enter()} />
        ) : (
          <SessionContext.Provider value={access.session}>
            <Screen />
          </SessionContext.Provider>
        )}
      </main>
      <Toast />
    </>
  );
}

function Screen() {
  const { path } = usePlace();
  const [first, name, part] = path;
  if (first === 'events') return <EventsScreen />;
  if (first === 'add') return <AddEndpoint />;
  if (first !== 'endpoints' || name === undefined) return <EndpointsScreen />;
  return part === 'change' ? (
    <ChangeEndpoint key={name} name={name} />
  ) : (
    <EndpointScreen key={name} name={name} />
  );
}

function Head({ signedIn }: { signedIn: boolean }) {
  const { path } = usePlace();
  const [theme, toggleTheme] = useTheme();
  const logo = theme === 'dark' ? (settings.logoDark ?? settings.logo) : settings.logo;
  const current = (isHere: boolean) => (isHere ? ('page' as const) : undefined);
  const other = theme === 'dark' ? 'Light theme' : 'Dark theme';
  return (
    <header class="portal-head">
      <div class="portal-bar">
        <a class="portal-brand" href="#/">
          {logo !== null && <img src={logo} alt="" height="26" />}
          <span>{settings.name}</span>
        </a>
        {signedIn && (
          <nav aria-label="Screens">
            <a href="#/" aria-current={current(path[0] !== 'events')}>
              Endpoints
            </a>
            <a href="#/events" aria-current={current(path[0] === 'events')}>
              Events
            </a>
          </nav>
        )}
        <span class="spacer" />
        <button type="button" class="bare" aria-label={other} title={other} onClick={toggleTheme}>
          <Icon name={theme === 'dark' ? 'sun' : 'moon'} />
        </button>
      </div>
    </header>
  );
}

function Ended() {
  return (
    <div class="portal-empty" role="status">
      <Icon path="M12 7v5l3 3M12 3a9 9 0 1 0 9 9 9 9 0 0 0-9-9z" />
      <h1>Your session has ended</h1>
      <p>Go back to the page that you came from, and open the webhooks again.</p>
    </div>
  );
}
