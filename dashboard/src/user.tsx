// The user at the end of the menu, and the choices of this browser: time zone and theme.

import type { Session } from './answers.js';
import { Icon } from './parts/icon.js';
import { useTheme } from './theme.js';
import { offsetOf, zoneName } from './zone.js';
import type { Zone } from './zone.js';

type UserProps = { session: Session; zone: Zone; toggleZone: () => void; logOut: () => void };

export function User({ session, zone, toggleZone, logOut }: UserProps) {
  const [theme, toggleTheme] = useTheme();
  return (
    <div class="who">
      <ZoneSwitch zone={zone} toggle={toggleZone} />
      <span class="who-name" title={`${session.name}, scope ${session.scope}`}>
        {session.name}
        <small>
          {session.scope}
          {session.tenantId !== null && ` · ${session.tenantId}`}
        </small>
      </span>
      <button
        type="button"
        class="bare"
        aria-label={theme === 'dark' ? 'Light theme' : 'Dark theme'}
        title={theme === 'dark' ? 'Light theme' : 'Dark theme'}
        onClick={toggleTheme}
      >
        <Icon name={theme === 'dark' ? 'sun' : 'moon'} />
      </button>
      {session.authentication === 'tokens' && !session.signedOn && (
        <button type="button" class="small" onClick={logOut}>
          Log out
        </button>
      )}
    </div>
  );
}

/** Says in which zone times are, and changes it. */
function ZoneSwitch({ zone, toggle }: { zone: Zone; toggle: () => void }) {
  const other = zone === 'UTC' ? 'local' : 'UTC';
  return (
    <button
      type="button"
      class="small zone"
      title={`Times are in ${zoneName(zone)}. Show them in ${zoneName(other)}.`}
      onClick={toggle}
    >
      <span class="zone-words">Times: {zone === 'local' && 'local, '}</span>
      {zone === 'UTC' ? 'UTC' : `UTC${offsetOf(new Date())}`}
    </button>
  );
}
