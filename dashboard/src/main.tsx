// Entry point of the page.

import './style/base.css';
import './style/parts.css';
import './style/cards.css';
import './style/screens.css';
import './style/endpoints.css';
import './style/destination.css';
import './style/search.css';
import './style/reports.css';

import { render } from 'preact';

import { App } from './app.js';
import { keepScroll } from './scroll.js';
import { applyTheme } from './theme.js';
import { showUnseenCharacters } from './visible-text.js';
import { applyZone } from './zone.js';

showUnseenCharacters();
applyTheme();
applyZone();
// before the page listens for another address: the old screen is still there then
keepScroll();
const root = document.querySelector('#app');
if (root !== null) render(<App />, root);
