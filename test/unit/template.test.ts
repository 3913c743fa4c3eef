// Names with fields of the message in them, and what the refusal of one name means for the others.

import { describe, expect, it } from 'vitest';

import { template, unlessOthersMay } from '../../src/destinations/template.js';
import { pause, reject } from '../../src/core/outcome.js';
import { claimedMessage } from '../support/claimed-message.js';

describe('a template', () => {
  const message = claimedMessage({ id: 'm', topic: 'user.registered', tenantId: 'acme' });

  it('W1 is filled from the message, and gives nothing if a field is missing', () => {
    expect(template()('x', 'events')(message)).toBe('events');
    expect(template()('x', '{tenantId}-{topic}.v1')(message)).toBe('acme-user.registered.v1');
    expect(template()('x', '{tenantId}-{key}')(message)).toBeNull();
    expect(template('{topic}')('x', undefined)(message)).toBe('user.registered');
  });

  it.each(['', '{colour}', 'a{', '{topic', 'topic}', 7, undefined])('%j is refused', (value) => {
    expect(() => template()('kafka.topic', value)).toThrow('kafka.topic');
  });

  it('P10 one forbidden name does not stop the others; a wrong login does', () => {
    const forbidden = pause({ code: 'not_authorized', remoteCode: 'NOPERM', message: 'no' });
    const many = template()('x', '{topic}');
    const one = template()('x', 'events');
    expect(unlessOthersMay(forbidden, one)).toBe(forbidden);
    expect(unlessOthersMay(forbidden, many)).toEqual({ ...forbidden, kind: 'retry' });
    const login = pause({ code: 'not_authenticated' });
    expect(unlessOthersMay(login, many)).toBe(login);
    const refused = reject({ code: 'not_authorized' });
    expect(unlessOthersMay(refused, many)).toBe(refused);
  });
});
