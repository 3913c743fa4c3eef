// The WordPress plugin of examples/registrations, run by a real PHP with stand-ins for the functions of WordPress: what
// an administrator sees, with and without the frame.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

const plugin = path.resolve('examples/registrations/wordpress/waybill-event-monitor.php');
const hasPhp = (process.env['PATH'] ?? '')
  .split(path.delimiter)
  .some((folder) => existsSync(path.join(folder, 'php')));
if (!hasPhp) {
  const reason = 'no php: install it (Debian: php-cli)';
  if (process.env['CI']) throw new Error(reason);
  console.warn(`The tests of the WordPress plugin are left out: ${reason}.`);
}

/** Loads the plugin, builds the menu and shows the page. */
function show({
  url,
  embed,
  mayManage = true,
}: {
  url?: string;
  embed?: string;
  mayManage?: boolean;
}) {
  const code = `
    error_reporting(E_ALL);
    define('ABSPATH', '/');
    ${url === undefined ? '' : `define('WAYBILL_MONITOR_URL', ${JSON.stringify(url)});`}
    ${embed === undefined ? '' : `define('WAYBILL_MONITOR_EMBED', ${embed});`}
    function add_action($name, $call) { global $actions; $actions[$name] = $call; }
    function add_menu_page($title, $menu, $capability, $slug, $show, $icon) { global $page; $page = [$capability, $show]; }
    function current_user_can($capability) { return ${String(mayManage)} && $capability === 'manage_options'; }
    function wp_die($text) { echo $text; exit; }
    function esc_url($url) { return htmlspecialchars($url, ENT_QUOTES); }
    require ${JSON.stringify(plugin)};
    $actions['admin_menu']();
    echo $page[0], "\\n";
    $page[1]();`;
  const { status, stdout, stderr } = spawnSync('php', ['-r', code], { encoding: 'utf8' });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout;
}

const url = 'https://waybill.example.com/';

describe.skipIf(!hasPhp)('the WordPress plugin', () => {
  it('W5 links to the page by default, in a new tab, for administrators', () => {
    const html = show({ url });
    expect(html).toMatch(/^manage_options\n/);
    expect(html).toContain(
      '<a class="button button-primary" href="https://waybill.example.com/#/messages" target="_blank" rel="noopener noreferrer">',
    );
    expect(html).not.toContain('<iframe');
    expect(show({ url, embed: 'false' })).not.toContain('<iframe');
    expect(show({ url, embed: "'yes'" })).not.toContain('<iframe');
  });

  it('W5 shows the page in a frame only if that is asked for', () => {
    expect(show({ url, embed: 'true' })).toContain(
      '<iframe src="https://waybill.example.com/#/messages"',
    );
  });

  it('shows nothing to others', () => {
    const html = show({ url, embed: 'true', mayManage: false });
    expect(html).toContain('You may not see the Event Monitor');
    expect(html).not.toContain(url);
  });

  it.each([
    undefined,
    '',
    'http://waybill.example.com/',
    'javascript:alert(1)',
    'waybill',
    'https://',
  ])('says what is missing if the address is %j', (wrong) => {
    const html = show({ ...(wrong !== undefined && { url: wrong }), embed: 'true' });
    expect(html).toContain('WAYBILL_MONITOR_URL is missing');
    expect(html).not.toMatch(/<iframe|href/);
  });

  it('accepts plain HTTP on this machine, and escapes the address', () => {
    expect(show({ url: 'http://127.0.0.1:4980/' })).toContain('href="http://127.0.0.1:4980/#/');
    expect(show({ url: 'https://a.example/"><script>' })).not.toContain('<script>');
  });

  it('does nothing outside of WordPress', () => {
    const { stdout, status } = spawnSync('php', [plugin], { encoding: 'utf8' });
    expect({ stdout, status }).toEqual({ stdout: '', status: 0 });
  });
});
