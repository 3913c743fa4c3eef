-- Hooks of the core and of everything that is no feature: who may call the functions, and which tables there are. See
-- sql/functions/access/hooks.sql.

-- Who may call the functions of the core.
CREATE OR REPLACE FUNCTION rights_of_core() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{producer}'::text[], '{enqueue,enqueue_many,enqueue_text}'::text[]),
    ('{consumer}', '{inbox_begin,inbox_begin_many}'),
    ('{relay}', '{claim,claim_in_order,mark_delivered,ack,nack,claim_batch,claim_batches,settle,settle_many,'
                'deliver_leases,extend_leases,release_leases,reap,upkeep,'
                'release_misdated,heartbeat,tell_limits,lacking_files,sign_off,'
                'notification_channel,register_listener,remove_stale_listeners,next_transaction,'
                'idle_is_safe,next_due,next_due_of,define_destination,remove_destination,define_cursor,'
                'hand_over_cursors,refuse_standby,join_cursor,leave_cursor,take_cursor,partitions_left,'
                'holds_cursor,note_batch,withdraw_death,extend_cursor,release_cursor,end_partition,renew_hold,'
                'release_hold,open_window,plan_window,read_page,move_cursor,'
                'note_failure,pause_cursor,park_message,make_partitions,partition_days_ahead,count_unrouted,'
                'add_statistics,take_sample,delivery_times,hooks}'),
    ('{maintenance}', '{begin_maintenance,end_maintenance,renew_hold,release_hold,limited_settings,'
                      'expired_partitions,remove_partition,prune_dedupe_keys,prune_inbox,prune_dead_letters,'
                      'prune_statistics,forget_positions}'),
    ('{operator}', '{retry_now,release_misdated,cancel,set_paused,move_deliveries,discard_deliveries,'
                   'reset_cursor,delete_cursor,hand_over_cursors,repair_cursors,find_destination}'),
    ('{control,auditor}', '{explain,cursor_status,cursor_partitions,stalled_cursors,health_check,delivery_times,'
                          'partition_days_ahead,describe_messages,match_messages,match_payloads,search_sizes,'
                          'search_suggestions,topics_with,dead_topics_with,failure_codes,find_dedupe_key,'
                          'is_taken,oldest_due_at,delivery_rates,loaded_destinations,waiting_destinations,'
                          'urgent_destinations,searched_destinations,count_waiting,count_retrying,count_dead,'
                          'count_all_waiting,count_all_retrying,count_all_dead,count_misdated,count_unrouted,'
                          'sample_seconds,find_destination,partition_bounds,id_at,id_time,id_slot,cause_of,'
                          'read_health,recent_attempts}'),
    ('{tenant_reader}', '{id_at,id_time,id_slot}')
$$;

-- The tables of the core.
CREATE OR REPLACE FUNCTION tables_of_core() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{messages,keys,deliveries,lanes,lane_tickets,leases,attempts,dead_letters,dedupe_keys,inbox,inbox_positions,'
          'unrouted_messages,destinations,routes,owners,destination_owners,declarations,cursors,cursor_readers,'
          'clock_steps,listeners,relays,statistics,samples,closed_rows,roles,retention_floors,message_limits,'
          'message_days,message_identities,thinned_partitions,maintenance_runs,holds,jobs,locks,tenant_limits}'::text[]
$$;
