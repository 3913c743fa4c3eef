<?php
/**
 * Plugin Name: Waybill Event Monitor
 * Description: Adds the Event Monitor to the admin menu: a link to Waybill's page, or the page itself in a frame.
 *
 * Copy this file to wp-content/plugins/, and define in wp-config.php:
 *
 *   define( 'WAYBILL_MONITOR_URL', 'https://waybill.example.com/' );
 *   define( 'WAYBILL_MONITOR_EMBED', true ); // only for the frame; without it, a link
 *
 * The frame needs `server: { embeddedBy: ['https://www.example.com'] }` in waybill.config.mjs, with the origin of this
 * site, and both must belong to the same site (example.com). Users log in to Waybill with a token of their own: this
 * plugin has no token.
 */

if ( ! defined( 'ABSPATH' ) ) {
	exit;
}

add_action( 'admin_menu', 'waybill_monitor_menu' );

function waybill_monitor_menu() {
	add_menu_page( 'Event Monitor', 'Event Monitor', 'manage_options', 'waybill-event-monitor', 'waybill_monitor_page', 'dashicons-list-view' );
}

/** The address of Waybill's page, or an empty string. Plain HTTP is accepted on this machine only. */
function waybill_monitor_url() {
	$url    = defined( 'WAYBILL_MONITOR_URL' ) ? (string) WAYBILL_MONITOR_URL : '';
	$scheme = parse_url( $url, PHP_URL_SCHEME );
	$host   = parse_url( $url, PHP_URL_HOST );
	$local  = in_array( $host, array( 'localhost', '127.0.0.1', '[::1]' ), true );
	return ( 'https' === $scheme || ( 'http' === $scheme && $local ) ) && $host ? $url : '';
}

function waybill_monitor_page() {
	if ( ! current_user_can( 'manage_options' ) ) {
		wp_die( 'You may not see the Event Monitor.' );
	}
	$url = waybill_monitor_url();
	echo '<div class="wrap"><h1>Event Monitor</h1>';
	if ( '' === $url ) {
		echo '<p>WAYBILL_MONITOR_URL is missing or no https:// address. Define it in wp-config.php.</p>';
	} else {
		if ( defined( 'WAYBILL_MONITOR_EMBED' ) && true === WAYBILL_MONITOR_EMBED ) {
			echo '<iframe src="' . esc_url( $url ) . '#/messages" title="Event Monitor" referrerpolicy="no-referrer" style="width: 100%; height: 80vh; border: 0"></iframe>';
		}
		echo '<p><a class="button button-primary" href="' . esc_url( $url ) . '#/messages" target="_blank" rel="noopener noreferrer">Open the Event Monitor</a></p>';
	}
	echo '</div>';
}
