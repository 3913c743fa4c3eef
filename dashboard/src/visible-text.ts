// Visible text: shows invisible characters as escapes in every text and title of the page. It hooks into the creation
// of Preact nodes, so no screen can forget it. Form fields, copied text and downloads are unchanged.

import { options } from 'preact';

import { visible } from '../../src/core/visible-text.js';

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
  else if (typeof node.type === 'string')
    for (const name of shownAttributes) {
      const text = node.props[name];
      if (typeof text === 'string') node.props[name] = visible(text);
    }
}
