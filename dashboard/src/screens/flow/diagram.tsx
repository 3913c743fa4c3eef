// Diagram of the flow: topics on the left, destinations on the right, and a line for each topic that goes to a
// destination. A line is as wide as its topic is busy, and has the colour of its destination's state. Pointing at a
// topic or a destination, or moving there with the keyboard, highlights its lines.

import { useState } from 'preact/hooks';

import type { Flow } from './answers.js';
import { linkTo } from '../../route.js';
import { plural, rate } from '../../shown.js';
import { linkToDestination } from '../destination-state.js';

const width = 900;
const rowHeight = 30;
const nodeWidth = 270;
const widest = 7;
/** Longer names are cut off; the title has the whole name. */
const mostLetters = 30;

type Node = {
  key: string;
  name: string;
  perSecond: number;
  state: string;
  note: string | null;
  href: string;
};

export function Diagram({ flow }: { flow: Flow }) {
  const [chosen, setChosen] = useState<string>();
  const topics = flow.topics.map(({ topic, perSecond }): Node => ({
    key: `topic ${topic}`,
    name: topic,
    perSecond,
    state: 'plain',
    note: null,
    href: linkTo('events', { topic }),
  }));
  const destinations = flow.destinations.map(({ name, perSecond, state, problem }): Node => ({
    key: `destination ${name}`,
    name,
    perSecond,
    state,
    note: problem,
    href: linkToDestination({ name }),
  }));
  const { otherTopics, otherDestinations } = flow;
  const rows = Math.max(
    topics.length + Number(otherTopics > 0),
    destinations.length + Number(otherDestinations > 0),
    1,
  );
  const middle = (place: number): number => place * rowHeight + rowHeight / 2;
  const busiest = Math.max(...topics.map(({ perSecond }) => perSecond), 0);
  const lines = flow.topics.flatMap((topic, from) =>
    topic.destinations.map((name) => {
      const to = flow.destinations.findIndex((destination) => destination.name === name);
      return { topic, to, from, state: flow.destinations[to]?.state ?? 'good', name };
    }),
  );
  const node = (each: Node, place: number, isRight: boolean) => (
    <DiagramNode
      key={each.key}
      node={each}
      x={isRight ? width - nodeWidth : 0}
      y={place * rowHeight}
      choose={setChosen}
    />
  );
  return (
    <svg
      class="flow"
      viewBox={`0 0 ${width} ${rows * rowHeight}`}
      role="group"
      aria-label="Topics and the destinations that get them; the table below has the same"
    >
      {lines.map(({ topic, name, from, to, state }) => {
        const isChosen = chosen === `topic ${topic.topic}` || chosen === `destination ${name}`;
        const [y1, y2] = [middle(from), middle(to)];
        const [x1, x2] = [nodeWidth, width - nodeWidth];
        const bend = (x2 - x1) / 2;
        return (
          <path
            key={`${topic.topic} ${name}`}
            class={`flow-line ${state} ${chosen === undefined ? '' : isChosen ? 'chosen' : 'other'}`}
            d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`}
            stroke-width={
              1 + (busiest > 0 ? (widest - 1) * Math.sqrt(topic.perSecond / busiest) : 0)
            }
            aria-hidden="true"
          />
        );
      })}
      {topics.map((each, place) => node(each, place, false))}
      {destinations.map((each, place) => node(each, place, true))}
      {otherTopics > 0 && (
        <text class="flow-rest" x="8" y={middle(topics.length) + 4}>
          {plural(otherTopics, 'more topic')}
        </text>
      )}
      {otherDestinations > 0 && (
        <text class="flow-rest" x={width - nodeWidth + 8} y={middle(destinations.length) + 4}>
          {plural(otherDestinations, 'more destination')}
        </text>
      )}
    </svg>
  );
}

function DiagramNode({
  node,
  x,
  y,
  choose,
}: {
  node: Node;
  x: number;
  y: number;
  choose: (key: string | undefined) => void;
}) {
  const { name, perSecond, note, state, href, key } = node;
  const shown = name.length > mostLetters ? `${name.slice(0, mostLetters - 1)}…` : name;
  // begins with what is visible, for people who speak to their browser
  const words = [`${shown} ${rate(perSecond)}/s`, ...(shown === name ? [] : [name]), note]
    .filter((part) => part !== null)
    .join(', ');
  return (
    <a
      class={`flow-node ${state}`}
      href={href}
      aria-label={words}
      onPointerEnter={() => choose(key)}
      onPointerLeave={() => choose(undefined)}
      onFocus={() => choose(key)}
      onBlur={() => choose(undefined)}
    >
      <title>{words}</title>
      <rect x={x + 1} y={y + 3} width={nodeWidth - 2} height={rowHeight - 6} rx="5" />
      <text x={x + 10} y={y + rowHeight / 2 + 4}>
        {shown}
      </text>{' '}
      <text class="flow-rate" x={x + nodeWidth - 10} y={y + rowHeight / 2 + 4} text-anchor="end">
        {rate(perSecond)}/s
      </text>
    </a>
  );
}
