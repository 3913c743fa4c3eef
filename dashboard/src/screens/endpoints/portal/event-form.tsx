// Field for the events of an endpoint: all of them, or chosen ones. Events with the same first word can be chosen
// together, which includes those that are added later. Topics that are not in the list are kept.

import { useState } from 'preact/hooks';

import type { OfferedEvents } from '../answers.js';
import { Example } from './events.js';

type EventFieldProps = {
  label: string;
  /** The id of the hint. */
  about: string;
  /** Undefined: not known yet. */
  events: OfferedEvents['events'] | undefined;
  topics: readonly string[];
  change: (topics: readonly string[]) => void;
};

export function EventField({ label, about, events, topics, change }: EventFieldProps) {
  const isAll = topics.length === 1 && topics[0] === '*';
  const [chosen, setChosen] = useState<readonly string[]>(isAll ? [] : topics);
  const choose = (next: readonly string[]): void => {
    setChosen(next);
    change(next);
  };
  return (
    <fieldset aria-describedby={about}>
      <legend>{label}</legend>
      <label class="tick">
        <input type="radio" name="all" checked={isAll} onChange={() => change(['*'])} />
        All events
      </label>
      <label class="tick">
        <input type="radio" name="all" checked={!isAll} onChange={() => choose(chosen)} />
        Only these
      </label>
      {!isAll &&
        (events?.length === 0 ? (
          <TopicText topics={chosen} choose={choose} />
        ) : (
          <EventChoices events={events ?? []} chosen={chosen} choose={choose} />
        ))}
    </fieldset>
  );
}

type ChoicesProps = {
  events: OfferedEvents['events'];
  chosen: readonly string[];
  choose: (topics: readonly string[]) => void;
};

function EventChoices({ events, chosen, choose }: ChoicesProps) {
  const groups = new Map<string, OfferedEvents['events']>();
  for (const event of events) {
    const [first = ''] = event.topic.split('.');
    groups.set(first, [...(groups.get(first) ?? []), event]);
  }
  const known = new Set([
    ...events.map(({ topic }) => topic),
    ...[...groups.keys()].map((first) => `${first}.*`),
  ]);
  const others = chosen.filter((topic) => !known.has(topic));
  const toggle = (topic: string): void =>
    choose(chosen.includes(topic) ? chosen.filter((each) => each !== topic) : [...chosen, topic]);
  const tick = (topic: string, within: boolean) => (
    <input
      type="checkbox"
      checked={within || chosen.includes(topic)}
      disabled={within}
      onChange={() => toggle(topic)}
    />
  );
  return (
    <ul class="event-choices" aria-label="Events">
      {[...groups].map(([first, members]) => {
        const all = `${first}.*`;
        const hasGroup = members.length > 1;
        return (
          <li key={first}>
            {hasGroup && (
              <label class="tick group">
                {tick(all, false)}
                <code>{all}</code>
                <span class="muted">all of these, also later ones</span>
              </label>
            )}
            <ul>
              {members.map((event) => (
                <li key={event.topic}>
                  <label class="tick">
                    {tick(event.topic, hasGroup && chosen.includes(all))}
                    <span>
                      <code>{event.topic}</code>
                      {event.description !== null && (
                        <small class="muted">{event.description}</small>
                      )}
                    </span>
                  </label>
                  <Example event={event} />
                </li>
              ))}
            </ul>
          </li>
        );
      })}
      {others.map((topic) => (
        <li key={topic}>
          <label class="tick">
            {tick(topic, false)}
            <code>{topic}</code>
          </label>
        </li>
      ))}
    </ul>
  );
}

/** Without typed events in the configuration, topics are written. */
function TopicText({
  topics,
  choose,
}: {
  topics: readonly string[];
  choose: (topics: string[]) => void;
}) {
  return (
    <input
      type="text"
      aria-label="Topics"
      placeholder="order.paid, user.*"
      spellcheck={false}
      autocomplete="off"
      value={topics.join(', ')}
      onChange={(event) =>
        choose(event.currentTarget.value.split(/[\s,]+/).filter((topic) => topic !== ''))
      }
    />
  );
}
