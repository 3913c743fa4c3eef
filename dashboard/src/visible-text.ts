// Visible text: shows invisible characters as escapes in every text and title of the page, and marks the white space of a
// name that has nothing else. It hooks into the creation of Preact nodes, so no screen can forget it. Form fields, copied
// text and downloads are unchanged.

import { options } from 'preact';

import { visible } from '../../src/core/visible-text.js';
import { visibleName } from './visible-name.js';

/** Attributes that a browser shows or reads aloud. */
const shownAttributes = ['title', 'aria-label', 'placeholder'];

/** A text node has no type; its props are the text. */
type Node = { readonly type: unknown; props: string | Record<string, unknown> };

/** Installs the hook for all nodes that are created from now on. */
export function showUnseenCharacters(): void {
  options.vnode = (vnode) => escapeNode(vnode);
}

function escapeNode(node: Node): void {
  if (typeof node.props === 'string') node.props = visible(node.props);
  else if (typeof node.type === 'string') {
    for (const name of shownAttributes) {
      const text = node.props[name];
      if (typeof text === 'string') node.props[name] = visible(text);
    }
    const { children } = node.props;
    if (typeof children === 'string') node.props['children'] = onlyText(node.type, children);
  }
}

/** The text of an element that contains nothing else. White space between two nodes is no such text. */
function onlyText(type: string, text: string): string {
  if (type === 'pre') return text;
  // the text of a link is a name; other texts, such as errors, may have several lines
  return type === 'a' || text.trim() === '' ? visibleName(text) : text;
}
