// Entry point of the customer portal.

import '../../../style/base.css';
import '../../../style/parts.css';
import '../../../style/cards.css';
import '../../../style/endpoints.css';
import '../../../style/portal.css';

import { render } from 'preact';

import { applyTheme } from '../../../theme.js';
import { showUnseenCharacters } from '../../../visible-text.js';
import { Portal } from './portal.js';
import { takeFragment } from './token.js';

showUnseenCharacters();
applyTheme();
takeFragment();
const root = document.querySelector('#app');
if (root !== null) render(<Portal />, root);
